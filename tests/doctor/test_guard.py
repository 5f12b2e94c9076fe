"""What stops a worker from taking work, and what lets it go on."""

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tallystick.core.errors import SettingsError
from tallystick.jobs.checks.facts import Look
from tallystick.jobs.checks.finding import Severity
from tallystick.jobs.doctor import Guard
from tallystick.jobs.probe import REPLAYED, Probe
from tallystick.jobs.settings import Settings
from tests.doctor.conftest import Launch, command
from tests.server.conftest import Server, eventually
from tests.server.test_topologies import free_port

pytestmark = pytest.mark.server


class Given(Settings):
    """Settings with waivers."""

    allow_unsafe: tuple[str, ...] = ()


MakeGuard = Callable[..., Guard]


@pytest.fixture
def guard_of() -> Iterator[MakeGuard]:
    made: list[Guard] = []

    def make(server: Server, *waivers: str) -> Guard:
        made.append(Guard(server.url, Given.load(allow_unsafe=waivers)))
        return made[-1]

    yield make
    for guard in made:
        guard.close()


def refusing(guard: Guard, now: float) -> set[str]:
    """The checks that refuse at this time, which agree with whether work is taken."""
    found = {finding.name for finding in guard.check(now) if finding.severity.refuses}
    assert guard.refuses == bool(found)
    return found


def test_a_durable_server_lets_a_worker_work(launch: Launch, guard_of: MakeGuard) -> None:
    guard = guard_of(launch())
    assert guard.refuses
    assert refusing(guard, 0) == set()


def test_a_server_without_durability_does_not(launch: Launch, guard_of: MakeGuard) -> None:
    guard = guard_of(launch(appendonly="no", appendfsync="everysec"))
    assert refusing(guard, 0) == {"appendonly", "appendfsync"}


def test_a_change_of_the_server_is_seen_within_two_minutes_and_its_end_within_two_seconds(
    launch: Launch, guard_of: MakeGuard
) -> None:
    server = launch()
    guard = guard_of(server)
    assert refusing(guard, 1000) == set()
    command(server, "CONFIG", "SET", "appendfsync", "everysec")
    assert refusing(guard, 1119) == set()
    assert refusing(guard, 1120) == {"appendfsync"}
    command(server, "CONFIG", "SET", "appendfsync", "always")
    assert refusing(guard, 1121) == {"appendfsync"}
    assert refusing(guard, 1122) == set()
    assert refusing(guard, 1241) == set()


def test_replicas_that_are_waited_for_and_away_keep_work_from_being_taken(
    launch: Launch, valkey: str
) -> None:
    port = str(free_port())
    primary = launch(port=port, bind="127.0.0.1", repl_diskless_sync_delay="0")
    guard = Guard(primary.url, Given.load(replicas=1))
    with contextlib.closing(guard):
        assert refusing(guard, 0) == {"replica-barrier"}
        launch(port=str(free_port()), bind="127.0.0.1", replicaof=f"127.0.0.1 {port}")
        turns = itertools.count(2, 2)
        eventually(lambda: not refusing(guard, next(turns)), "the replica confirms")


def test_each_change_is_logged_once(
    launch: Launch, guard_of: MakeGuard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tallystick.worker")
    server = launch()
    guard = guard_of(server)
    guard.check(0)
    assert caplog.messages == []
    command(server, "CONFIG", "SET", "appendfsync", "everysec")
    for now in (120, 122, 124, 126):
        guard.check(now)
    (refusal,) = caplog.messages
    assert refusal.startswith("no new work is taken: appendfsync: appendfsync everysec.")
    assert "CONFIG SET appendfsync always" in refusal
    command(server, "CONFIG", "SET", "appendfsync", "always")
    for now in (128, 130, 250, 370):
        guard.check(now)
    assert caplog.messages[1:] == ["work is taken again: what was refused is mended"]


def test_a_waiver_lets_a_worker_work_and_says_so_once(
    launch: Launch, guard_of: MakeGuard, caplog: pytest.LogCaptureFixture
) -> None:
    server = launch(appendonly="no", appendfsync="everysec")
    guard = guard_of(server, "appendonly", "appendfsync")
    for now in (0, 120, 240):
        assert refusing(guard, now) == set()
    assert sorted(message.partition(".")[0] for message in caplog.messages) == [
        "UNSAFE, waived by TALLYSTICK_ALLOW_UNSAFE: appendfsync: appendfsync everysec",
        "UNSAFE, waived by TALLYSTICK_ALLOW_UNSAFE: appendonly: appendonly no",
    ]


def test_a_warning_is_logged_once_and_stops_nothing(
    launch: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(launch().url, Given.load(verify_deadline_seconds=60))
    for now in (0, 120, 240):
        assert refusing(guard, now) == set()
    guard.close()
    (warning,) = caplog.messages
    assert warning.startswith("lease-fit: verification may outlive the lease")


def test_a_waiver_covers_no_other_check(launch: Launch, guard_of: MakeGuard) -> None:
    server = launch(appendonly="no", appendfsync="everysec", maxmemory_policy="allkeys-lru")
    guard = guard_of(server, "appendonly", "appendfsync")
    assert refusing(guard, 0) == {"maxmemory-policy"}


@pytest.mark.parametrize("name", ["appendfsnc", "server-answers", ""])
def test_a_waiver_of_no_check_is_an_error(name: str) -> None:
    with pytest.raises(SettingsError, match="TALLYSTICK_ALLOW_UNSAFE"):
        Guard("redis://localhost", Given.load(allow_unsafe=(name,)))


def test_until_a_server_has_answered_no_work_is_taken(launch: Launch, guard_of: MakeGuard) -> None:
    server = launch()
    server.stop()
    guard = guard_of(server)
    assert guard.check(0) == []
    assert guard.refuses
    server.start()
    guard.check(1)
    assert guard.refuses
    assert refusing(guard, 2) == set()


def test_a_server_that_comes_back_as_another_is_seen_soon_after_a_doubt(
    launch: Launch, guard_of: MakeGuard
) -> None:
    server = launch()
    guard = guard_of(server)
    assert refusing(guard, 0) == set()
    server.stop()
    guard.doubt(10)
    assert refusing(guard, 12) == set()  # away: nobody can take work from it
    server.options["appendfsync"] = "everysec"
    server.start()
    assert refusing(guard, 14) == {"appendfsync"}


def test_a_replica_that_was_a_primary_is_refused(launch: Launch, guard_of: MakeGuard) -> None:
    server = launch()
    guard = guard_of(server)
    assert refusing(guard, 0) == set()
    command(server, "REPLICAOF", "127.0.0.1", "1")
    assert refusing(guard, 120) == {"server-role"}


def test_a_server_that_tells_nothing_is_refused(launch: Launch, guard_of: MakeGuard) -> None:
    server = launch()
    command(server, "ACL", "SETUSER", "default", "-info", "-config")
    guard = guard_of(server)
    guard.check(0)
    assert guard.refuses
    assert {f.severity for f in guard.check(0)} == {Severity.UNKNOWN, Severity.OK}


def test_a_jump_of_the_server_s_clock_stops_work_until_the_next_look(
    launch: Launch, guard_of: MakeGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = guard_of(launch())
    assert refusing(guard, 0) == set()
    look = Probe.look

    def ahead(probe: Probe) -> Look:
        found = look(probe)
        return replace(found, redis=found.redis + 90, local=found.local + 90)

    monkeypatch.setattr(Probe, "look", ahead)
    assert refusing(guard, 120) == {"clock-step"}
    assert refusing(guard, 122) == set()


def test_a_look_costs_few_commands_and_no_writes(launch: Launch, guard_of: MakeGuard) -> None:
    server = launch()
    guard = guard_of(server)
    guard.check(0)
    command(server, "CONFIG", "RESETSTAT")
    guard.check(120)
    stats = command(server, "INFO", "commandstats")
    calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
    connecting = {"hello", "auth", "client|setinfo", "select", "config|resetstat"}
    assert {name: calls[name] for name in calls.keys() - connecting} == {
        "info": 1,
        "config|get": 1,
        "time": 5,
        "acl|dryrun": len(REPLAYED),
    }
