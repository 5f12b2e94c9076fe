"""The barrier of replicated set-ups: whatever somebody goes by is on the replicas' disks first.

Real Valkey servers (the Redis 7.0 of some distributions has no WAITAOF), real workers, and a link
between primary and replica that can fall silent.
"""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.connection import AbstractConnection

from tallystick.core.errors import NotReplicated
from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.jobs.states import State
from tallystick.jobs.store import Store
from tallystick.jobs.worker import Work, runner
from tests.server import actions
from tests.server.conftest import ACTIONS, Launch, Server, Site, command, eventually
from tests.server.replicas import Pair, follow, pair, switched, watched

pytestmark = pytest.mark.server

KINDS = ("readable", "keyed", "versioned", "fenced", "blind")
PARAMS = {"item": "x", "value": "new"}
UNGUARDED = {"TALLYSTICK_ALLOW_UNSAFE": "replica-barrier"}
"""The worker's guard would not let it come to that."""


@pytest.fixture
def two(launch: Launch, valkey: str) -> Iterator[Pair]:
    with pair(launch) as found:
        store = Store.connect(found.primary.url, "tallystick", replicas=1)
        with contextlib.closing(store):
            eventually(lambda: _confirmed(store), "the replica has its append-only file")
        yield found


def settings_of(url: str, folder: Path) -> Settings:
    return Settings.load(
        redis_url=url,
        data_dir=folder / "data",
        actions=(ACTIONS,),
        lease_seconds=2,
        replicas=1,
    )


@contextlib.contextmanager
def opened(server: Server, url: str, folder: Path) -> Iterator[Site]:
    with Tallystick.from_settings(settings_of(url, folder)) as tally:
        found = Site(folder, server, tally.settings, tally, worker_url=url)
        try:
            yield found
        finally:
            for process in found.workers:
                process.kill()
                process.wait(10)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TARGET_DIR", str(tmp_path))
    monkeypatch.setenv("TALLYSTICK_REPLICAS", "1")
    with actions.target():
        pass
    return tmp_path


@pytest.fixture
def site(two: Pair, folder: Path) -> Iterator[Site]:
    """A site on the pair, which waits for the replica."""
    with opened(two.primary, two.primary.url, folder) as found:
        yield found


def missed(site: Site) -> int:
    return site.tally.store.snapshot().counters.get("barriers_missed", 0)


# --- what callers are told -----------------------------------------------------------------------


def test_what_was_acknowledged_is_on_the_disk_of_the_replica(site: Site, two: Pair) -> None:
    id = site.approved("item.readable", "x")
    site.tally.stop(by="oncall", reason="look")
    two.replica.stop(signal.SIGKILL)
    two.primary.stop(signal.SIGKILL)
    del two.replica.options["replicaof"]
    two.replica.start()
    with Tallystick.from_settings(settings_of(two.replica.url, site.folder)) as there:
        assert there.get(id).state == "approved"
        assert len(there.stops()) == 1


CALLS: dict[str, Any] = {
    "propose": lambda tally, id: tally.propose("item.readable", PARAMS, key="y", by="producer"),
    "approve": lambda tally, id: tally.approve(id, by="approver"),
    "reject": lambda tally, id: tally.reject(id, by="approver", reason="no"),
    "cancel": lambda tally, id: tally.cancel(id, by="producer"),
    "stop": lambda tally, id: tally.stop(by="oncall", reason="look"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nothing_is_acknowledged_that_the_replica_does_not_have_also_when_it_is_said_again(
    site: Site, two: Pair, call: Any
) -> None:
    id = site.tally.propose("item.readable", PARAMS, key="x", by="producer").id
    two.link.silence()
    with pytest.raises(NotReplicated, match="0 of 1 within"):
        call(site.tally, id)
    with (
        Tallystick.from_settings(site.settings) as other,  # another connection than the one
        pytest.raises(NotReplicated),  # that wrote, which a server answers too soon
    ):
        call(other, id)
    assert missed(site) == 2
    two.link.flow()
    eventually(lambda: _confirmed(site.tally.store), "the replica catches up")
    call(site.tally, id)


def _confirmed(store: Store) -> bool:
    try:
        store.confirm()
    except NotReplicated:
        return False
    return True


def test_an_outcome_is_not_told_before_the_replica_has_it(site: Site, two: Pair) -> None:
    id = site.tally.propose("item.readable", PARAMS, key="x", by="producer").id
    two.link.silence()
    with pytest.raises(NotReplicated):
        site.tally.cancel(id, by="producer")
    with pytest.raises(NotReplicated):
        site.tally.wait(id)
    two.link.flow()
    eventually(lambda: _confirmed(site.tally.store), "the replica catches up")
    assert site.tally.wait(id).state == "cancelled"


@pytest.mark.parametrize("why", ["no replica", "no append-only file there", "no WAITAOF"])
def test_what_can_never_be_confirmed_is_refused(
    launch: Launch, request: pytest.FixtureRequest, why: str
) -> None:
    if why != "no WAITAOF":
        request.getfixturevalue("valkey")
    with contextlib.ExitStack() as stack:
        if why == "no append-only file there":
            found = stack.enter_context(pair(launch))
            command(found.replica, "CONFIG", "SET", "appendonly", "no")
            server = found.primary
        else:
            server = launch()
        store = Store.connect(server.url, "tallystick", timeout=2, replicas=1)
        stack.callback(store.close)
        with pytest.raises(NotReplicated):
            store.switch("*", stop=True, who="oncall", reason="look")
        assert set(store.stops()) == {"*"}, "what was written stays"


# --- what workers do -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_intent_that_the_replica_does_not_have_is_not_acted_on(
    site: Site, two: Pair, kind: str
) -> None:
    id = site.approved(f"item.{kind}", kind)
    two.link.silence()
    site.more = UNGUARDED
    site.worker("--processes", "2")
    eventually(lambda: "withheld" in site.events(id), "the intent is withheld")
    eventually(lambda: missed(site) > 2, "nothing begins as long as the replica is away")
    assert actions.effects(kind) == 0
    assert site.tally.get(id).state == "approved"
    assert site.events(id).count("withheld") <= 2, "the journal is not filled meanwhile"
    two.link.flow()
    assert site.at_rest(id, seconds=30) == "committed"
    assert actions.effects(kind) == 1
    assert site.tally.get(id).attempts == 1


def test_the_guard_lets_nothing_begin_as_long_as_a_replica_is_away(site: Site, two: Pair) -> None:
    id = site.approved("item.readable", "x")
    two.link.silence()
    site.worker()
    eventually(lambda: "replica-barrier" in site.log(), "the worker says what is wrong")
    assert site.events(id)[-1] == "vote"
    two.link.flow()
    assert site.at_rest(id, seconds=30) == "committed"


def test_an_undo_that_the_replica_does_not_have_is_not_sent(site: Site, two: Pair) -> None:
    actions.arm("wait-after")
    id = site.approved("item.wrong", "wrong")
    site.worker()
    eventually(lambda: actions.effects("wrong"), "the effect lands wrong", seconds=30)
    two.link.silence()
    (site.folder / "wait-after").unlink()
    eventually(lambda: "withheld" in site.events(id), "the undo is withheld")
    assert (site.tally.get(id).state, actions.effects("wrong", "undo")) == ("rolling_back", 0)
    two.link.flow()
    assert site.at_rest(id, seconds=30) == "rolled_back"
    assert (actions.effects("wrong"), actions.effects("wrong", "undo")) == (1, 1)


def test_a_clean_run_makes_no_more_round_trips_for_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[object] = []
    send: Any = AbstractConnection.send_packed_command

    def counted(self: Any, *given: Any, **options: Any) -> Any:
        trips.append(given)
        return send(self, *given, **options)

    def run(replicas: int, item: str) -> int:
        settings = site.settings.model_copy(update={"replicas": replicas})
        store = Store.connect(two_url, settings.namespace, replicas=replicas)
        work = Work(settings, site.tally.registry, site.tally.keyring, two_url, None)
        assert site.tally.transport is not None
        with contextlib.closing(store):
            perform = runner(work, store, site.tally.transport, "here")
            perform(site.approved("item.readable", f"{item}-0"))  # the scripts are loaded
            id = site.approved("item.readable", item)
            with monkeypatch.context() as watched_for:
                watched_for.setattr(AbstractConnection, "send_packed_command", counted)
                trips.clear()
                assert perform(id) is State.COMMITTED
        return len(trips)

    two_url = site.server.url
    assert run(1, "with") == run(0, "without") == 5


# --- failover ------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", [False, True], ids=["in step", "behind"])
def test_a_failover_loses_no_intent_and_halts_nothing(
    launch: Launch, two: Pair, folder: Path, silent: bool
) -> None:
    """The primary dies while workers are in the middle of everything, and the replica may have
    heard nothing for a while."""
    with (
        watched(two.primary, folder) as url,
        opened(two.primary, url, folder) as site,
    ):
        site.worker("--processes", "4")
        ids = {
            f"{kind}-{n}": site.approved(f"item.{kind}", f"{kind}-{n}")
            for n in range(6)
            for kind in KINDS
        }
        eventually(lambda: _done(ids) > 4, "some are done", seconds=30)
        if silent:
            two.link.silence()
            eventually(lambda: missed(site), "a barrier is missed")
        two.primary.stop()
        with Tallystick.from_settings(settings_of(two.replica.url, folder)) as there:
            for item, id in ids.items():
                events = [line.evidence["event"] for line in there.history(id)]
                assert not actions.effects(item) or "intent" in events, item
        switched(site.tally.store)
        follow(launch, two.replica)
        eventually(lambda: _confirmed(site.tally.store), "the new replica has its file")
        for item, id in ids.items():
            assert site.at_rest(id, seconds=60) == "committed", item
            assert actions.effects(item) == 1
        assert "rewound" not in site.log()


def _done(ids: dict[str, str]) -> int:
    return sum(actions.effects(item) for item in ids)


def test_a_primary_that_was_cut_off_lets_no_effect_happen(
    launch: Launch, two: Pair, site: Site, folder: Path
) -> None:
    """A split brain: one worker still has the old primary, another has the promoted replica."""
    ids = {kind: site.approved(f"item.{kind}", kind) for kind in KINDS}
    two.link.silence()
    two.promote()
    follow(launch, two.replica)
    site.more = UNGUARDED
    site.worker("--processes", "2")
    eventually(lambda: missed(site), "the old primary's worker misses its barrier")
    assert _done(ids) == 0
    with opened(two.replica, two.replica.url, folder) as other:
        other.more = {  # another host, with a memory of its own
            "TALLYSTICK_DATA_DIR": str(folder / "elsewhere"),
            "TALLYSTICK_KEY_DIR": str(folder / "data" / "keys"),
        }
        other.worker("--processes", "2")
        for kind, id in ids.items():
            assert other.at_rest(id, seconds=30) == "committed", kind
        assert site.workers[0].poll() is None
        assert {kind: actions.effects(kind) for kind in KINDS} == dict.fromkeys(KINDS, 1)
