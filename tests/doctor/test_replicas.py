"""The command on real replicas and a real sentinel: would a failover keep what was acknowledged?"""

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.jobs.connection import connect
from tests.doctor.conftest import Clinic, Launch, command
from tests.server.conftest import Server, eventually
from tests.server.test_topologies import free_port

pytestmark = pytest.mark.server


@pytest.fixture
def trio(launch: Launch) -> list[Server]:
    """A primary, and two replicas that keep up."""
    port = str(free_port())
    primary = launch(
        port=port,
        bind="127.0.0.1",
        min_replicas_to_write="1",
        min_replicas_max_lag="2",
        repl_diskless_sync_delay="0",
    )
    place = f"127.0.0.1 {port}"
    replicas = [launch(port=str(free_port()), bind="127.0.0.1", replicaof=place) for _ in range(2)]

    def online() -> bool:
        info = command(primary, "INFO", "replication")
        return all(info.get(f"slave{n}", {}).get("state") == "online" for n in (0, 1))

    eventually(online, "both replicas are online")
    return [primary, *replicas]


REPLICATION = {
    "replica-count",
    "replica-link",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "replica-barrier",
}


def test_replicas_that_keep_up_are_not_refused(
    clinic: Clinic, valkey: str, trio: list[Server]
) -> None:
    told = clinic.doctor(trio[0].url)
    assert not told.refusing() & REPLICATION
    assert told.having("warn") & REPLICATION == {"replica-barrier"}
    assert "2 of 2" in told.found("replica-barrier")


@pytest.mark.parametrize(("waits", "severity"), [("1", "refuse"), ("2", "ok"), ("3", "refuse")])
def test_it_is_asked_whether_tallystick_waits_for_as_many_as_there_are(
    clinic: Clinic, valkey: str, trio: list[Server], waits: str, severity: str
) -> None:
    assert clinic.doctor(trio[0].url, replicas=waits).severity("replica-barrier") == severity


def test_to_wait_for_replicas_that_are_not_there_is_refused(
    clinic: Clinic, valkey: str, launch: Launch
) -> None:
    told = clinic.doctor(launch().url, replicas="1")
    assert "0 of 1" in told.found("replica-barrier")
    assert told.severity("replica-barrier") == "refuse"


def test_a_replica_whose_link_is_stalled_is_refused(
    clinic: Clinic, valkey: str, trio: list[Server]
) -> None:
    stalled = trio[2].process
    assert stalled is not None
    stalled.send_signal(signal.SIGSTOP)
    try:
        told = clinic.doctor(trio[0].url)
    finally:
        stalled.send_signal(signal.SIGCONT)
    assert told.refusing() & REPLICATION == {"replica-barrier"}
    assert "1 local disk and 1 of 2" in told.found("replica-barrier")


def test_a_replica_without_an_append_only_file_does_not_count(
    clinic: Clinic, valkey: str, trio: list[Server]
) -> None:
    command(trio[1], "CONFIG", "SET", "appendonly", "no")
    told = clinic.doctor(trio[0].url)
    assert told.refusing() & REPLICATION == {"replica-barrier"}


def test_replicas_of_a_server_without_waitaof_are_refused(
    clinic: Clinic, trio: list[Server]
) -> None:
    told = clinic.doctor(trio[0].url)
    if told.found("server-version").startswith("Redis 7.0"):
        assert told.refusing() & REPLICATION == {"replica-barrier"}
        assert "no WAITAOF" in told.found("replica-barrier")


def test_one_replica_with_the_defaults_is_refused(clinic: Clinic, launch: Launch) -> None:
    primary = launch(port=str(free_port()), bind="127.0.0.1", repl_diskless_sync_delay="0")
    place = f"127.0.0.1 {primary.options['port']}"
    launch(port=str(free_port()), bind="127.0.0.1", replicaof=place)
    eventually(
        lambda: command(primary, "INFO", "replication").get("slave0", {}).get("state") == "online",
        "the replica is online",
    )
    refused = clinic.doctor(primary.url).refusing()
    assert {"replica-count", "min-replicas-to-write", "min-replicas-max-lag"} <= refused


def test_the_replica_itself_is_refused(clinic: Clinic, launch: Launch) -> None:
    server = launch()
    command(server, "REPLICAOF", "127.0.0.1", "1")
    assert clinic.doctor(server.url).refusing() == {"server-role"}


@pytest.fixture
def watched(launch: Launch, tmp_path: Path, valkey: str) -> Iterator[str]:
    """A primary and two replicas, one of them never to be promoted, under a sentinel, all with a
    password; the URL."""
    port, place = str(free_port()), tmp_path / "sentinel.conf"
    primary = launch(port=port, bind="127.0.0.1", repl_diskless_sync_delay="0")
    options = {"bind": "127.0.0.1", "replicaof": f"127.0.0.1 {port}"}
    replicas = [
        launch(port=str(free_port()), replica_priority=priority, **options)
        for priority in ("100", "0")
    ]
    for server in (*replicas, primary):
        command(server, "CONFIG", "SET", "masterauth", "secret")
        command(server, "CONFIG", "SET", "requirepass", "secret")
    own = free_port()
    place.write_text(
        f"port {own}\nbind 127.0.0.1\ndir {tmp_path}\nrequirepass secret\n"
        f"sentinel monitor tally 127.0.0.1 {port} 1\nsentinel auth-pass tally secret\n"
    )
    sentinel = subprocess.Popen([valkey, str(place), "--sentinel"], stdout=subprocess.DEVNULL)
    asked = connect(f"redis://:secret@127.0.0.1:{own}", timeout=2, retries=False, decode=True)

    def priorities() -> list[int]:
        with contextlib.suppress(Exception):
            return sorted(told["slave-priority"] for told in asked.sentinel_slaves("tally"))
        return []

    eventually(lambda: priorities() == [0, 100], "the sentinel knows both replicas")
    asked.close()
    yield f"redis+sentinel://:secret@127.0.0.1:{own}/tally/0"
    sentinel.kill()
    sentinel.wait(10)


def test_under_sentinel_only_replicas_that_it_may_promote_count(
    clinic: Clinic, watched: str
) -> None:
    told = clinic.doctor(watched)
    assert told.found("replica-count").startswith("1 electable")
    assert "2 of 2 replicas' disks" in told.found("replica-barrier")
    assert told.refusing() & REPLICATION == {
        "replica-count",
        "min-replicas-to-write",
        "min-replicas-max-lag",
        "replica-barrier",
    }
    waiting = clinic.doctor(watched, replicas="2")
    assert waiting.severity("replica-barrier") == "ok"
    assert told.found("default-user") == "a password is asked"
    assert "secret" not in told.text
