"""The store, script by script: each answers the same when it is asked again, and each refuses
what no longer fits without changing anything but the count of refusals."""

import contextlib
import dataclasses
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import fakeredis
import pytest
from redis.exceptions import ConnectionError as LinkError
from redis.exceptions import MasterDownError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as LinkTimeout

from tallystick import State, TallystickError
from tallystick.core.errors import (
    Conflict,
    KeyConflict,
    LeaseLost,
    Stopped,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreSuspended,
    StoreUnavailable,
    UnknownId,
)
from tallystick.jobs import wire
from tallystick.jobs.record import Record, Tampered
from tallystick.jobs.store import Store
from tallystick.jobs.upkeep import EVERYTHING
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.driving import (
    TEN,
    Clock,
    counted,
    key_space,
    lease_runs_out,
    nothing_stored,
    opened,
    record_of,
    redis_of,
)
from tests.targets import DEPOSIT

NOTE = {"event": "noted"}
LEASE_MS = 60_000


def fresh() -> Bench:
    return opened()[1]


def claimed(bench: Bench) -> Record:
    """An approved action in the hands of a worker."""
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    return bench.tally.store.claim(record, worker="w-1", lease_ms=LEASE_MS)


def intend(bench: Bench, record: Record, **given: Any) -> Record:
    """The move that begins an effect, by the holder of the lease."""
    how: dict[str, Any] = {"lease": "hold", "lease_ms": LEASE_MS} | given
    return bench.tally.store.move(
        record, State.RUNNING, who="w-1", worker="w-1", evidence={"event": "intent"}, **how
    )


# --- a reply that is lost ------------------------------------------------------------------------


class Deaf(fakeredis.FakeRedis):
    """A client whose next replies are lost: the server has done it, and nobody hears so."""

    lost = 0
    error: Exception = LinkError("Connection reset by peer")

    def evalsha(self, *args: Any, **given: Any) -> Any:
        return self._heard(super().evalsha(*args, **given))

    def pipeline(self, *args: Any, **given: Any) -> Any:
        pipe: Any = super().pipeline(*args, **given)
        execute = pipe.execute
        pipe.execute = lambda: self._heard(execute())
        return pipe

    def _heard(self, reply: Any) -> Any:
        if self.lost:
            self.lost -= 1
            raise self.error
        return reply


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_PAUSE_SECONDS", (0, 0))


def deafened(bench: Bench) -> Deaf:
    """Give the bench's Tallystick such a client, of the same server."""
    pool = bench.redis.connection_pool.connection_kwargs
    client = Deaf(decode_responses=True, server=pool["server"])
    bench.tally.store = Store(client, bench.settings.namespace, url="fakeredis")
    bench.tally.store.ping()
    for script in bench.tally.store._scripts.values():
        client.script_load(script.script)
    return client


@contextmanager
def lost_reply(client: Deaf, times: int = 1) -> Iterator[None]:
    client.lost = times
    yield
    assert client.lost == 0, "the reply was not lost"


@pytest.mark.parametrize("error", [LinkError("reset"), LinkTimeout("slow")], ids=repr)
def test_a_proposal_whose_reply_was_lost_is_one_action(error: Exception) -> None:
    bench = fresh()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    content = dataclasses.replace(record.content, id="0123456789abcdef", key="k")
    client = deafened(bench)
    client.error = error
    with lost_reply(client):
        owner = bench.tally.store.propose(
            content, "sha256:asked", record.state, who="x", event="proposed", due_ms=0
        )
    assert owner == (content.id, "sha256:asked")
    assert len(bench.tally.history(content.id)) == 1
    assert counted(bench)[counters.transition(DEPOSIT, record.state)] == 2
    assert counted(bench)[counters.MOVES] == 2


def test_a_producer_does_not_notice_a_reply_that_was_lost() -> None:
    bench = fresh()
    client = deafened(bench)
    with lost_reply(client):
        found = bench.propose(DEPOSIT, TEN, key="k")
    assert found.state is State.WAITING_FOR_APPROVAL


@pytest.mark.parametrize("times", [1, 2])
def test_a_move_whose_reply_was_lost_is_one_line(times: int) -> None:
    bench = fresh()
    record = claimed(bench)
    client = deafened(bench)
    with lost_reply(client, times):
        moved = intend(bench, record)
    assert bench.tally.store.load(record.id).lines == moved.lines
    assert bench.events(record.id)[-2:] == ["claimed", "intent"]
    assert counted(bench)[counters.transition(DEPOSIT, "running")] == 1
    assert counters.conflict("running") not in counted(bench)


def test_a_claim_whose_reply_was_lost_is_still_ours() -> None:
    bench = fresh()
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    client = deafened(bench)
    with lost_reply(client):
        mine = bench.tally.store.claim(record, worker="w-1", lease_ms=LEASE_MS)
    assert (mine.token, bench.events(record.id).count("claimed")) == (1, 1)
    assert mine.lease_ms > 0
    assert intend(bench, mine).state is State.RUNNING


def test_a_vote_whose_reply_was_lost_is_one_vote() -> None:
    bench = fresh()
    id = bench.propose(DEPOSIT, TEN).id
    client = deafened(bench)
    client.lost = 2  # of the reading and of the move
    assert bench.tally.approve(id, by="anna").state is State.APPROVED
    assert len(record_of(bench, id).votes) == 1


def test_a_stop_whose_reply_was_lost_is_one_line() -> None:
    bench = fresh()
    client = deafened(bench)
    with lost_reply(client):
        bench.tally.stop(by="oncall", reason="look")
    assert len(bench.tally.store.operations()) == 1
    assert list(bench.tally.store.stops()) == [EVERYTHING]


def test_a_quarantine_whose_reply_was_lost_calls_people_once() -> None:
    bench = fresh()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(bench.tally.store.keys.action(id), "digest", "sha256:other")
    client = deafened(bench)
    stored = bench.tally.store.read(id)
    with lost_reply(client):
        bench.tally.store.quarantine(stored, "digest", worker="w-1")
    assert len(bench.alerts()) == 1
    assert counted(bench)[counters.security_event("corrupt_record")] == 1
    assert counted(bench)[counters.attention(DEPOSIT, "corrupt")] == 1


READINGS: dict[str, Callable[[Bench], object]] = {
    "owner of a key": lambda bench: bench.tally.store.owner_of("k")[0],
    "ids": lambda bench: bench.tally.store.ids(),
    "ids of a state": lambda bench: bench.tally.store.ids(State.APPROVED),
    "open work": lambda bench: bench.tally.store.open_work(),
    "snapshot": lambda bench: bench.tally.store.snapshot().actions,
}


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_whose_reply_was_lost_is_read_again(name: str) -> None:
    bench = fresh()
    bench.approved(DEPOSIT, TEN, key="k")
    client = deafened(bench)
    expected = READINGS[name](bench)
    with lost_reply(client):
        assert READINGS[name](bench) == expected


def test_a_store_that_stays_deaf_is_reported_and_the_same_call_may_be_repeated() -> None:
    bench = fresh()
    id = bench.propose(DEPOSIT, TEN).id
    client = deafened(bench)
    record = bench.tally.store.load(id)
    client.lost = 3
    with pytest.raises(StoreUnavailable, match="repeat the same command"):
        bench.tally.store.move(record, State.CANCELLED, who="anna", evidence={"event": "cancelled"})
    assert bench.tally.cancel(id, by="anna").state is State.CANCELLED
    assert bench.events(id) == ["proposed", "cancelled"]


# --- the same arguments again --------------------------------------------------------------------


def test_a_move_repeated_answers_the_same_and_changes_nothing() -> None:
    bench = fresh()
    record = claimed(bench)
    moved = intend(bench, record, lease="leave", due_ms=1000)
    with nothing_stored(bench):
        again = intend(bench, record, lease="leave", due_ms=1000)
    assert again == moved


def test_a_proposal_repeated_under_its_own_id_answers_the_same() -> None:
    bench = fresh()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)

    def propose(request: str) -> tuple[str, str]:
        return bench.tally.store.propose(
            record.content, request, record.state, who="x", event="proposed", due_ms=0
        )

    owner, _ = bench.tally.store.owner_of(record.content.key)
    assert owner
    with nothing_stored(bench):
        assert propose(owner[1]) == owner
        assert propose("sha256:other") == owner


def test_a_key_without_an_owner_has_none() -> None:
    bench = fresh()
    owner, now = bench.tally.store.owner_of("k")
    assert owner is None
    assert now > 1_700_000_000_000


def test_a_second_claim_does_not_get_the_lease() -> None:
    bench = fresh()
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    first = bench.tally.store.claim(record, worker="w-1", lease_ms=LEASE_MS)
    with only_counted(bench, "approved"), pytest.raises(StoreError) as raised:
        bench.tally.store.claim(record, worker="w-2", lease_ms=LEASE_MS)
    assert isinstance(raised.value, Conflict | LeaseLost)
    with only_counted(bench, "approved"), pytest.raises(LeaseLost, match=first.owner):
        bench.tally.store.claim(first, worker="w-2", lease_ms=LEASE_MS)


def test_every_claim_has_a_higher_token_than_all_before() -> None:
    bench = fresh()
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    for number in (1, 2, 3):
        record = bench.tally.store.claim(record, worker="w", lease_ms=LEASE_MS)
        assert record.token == number
        lease_runs_out(bench, record.id)
        record = record_of(bench, record.id)


def test_twenty_proposals_at_once_under_one_key_are_one_action() -> None:
    bench = fresh()
    gate = threading.Barrier(20, timeout=30)

    def propose(_: int) -> str:
        gate.wait()
        return bench.propose(DEPOSIT, TEN, key="k").id

    with ThreadPoolExecutor(20) as pool:
        ids = set(pool.map(propose, range(20)))
    assert list(ids) == bench.tally.store.ids()
    assert len(bench.tally.history(ids.pop())) == 1
    numbers = counted(bench)
    assert numbers[counters.transition(DEPOSIT, State.WAITING_FOR_APPROVAL)] == 1
    assert numbers[counters.replay(DEPOSIT)] == 19


def test_twenty_claims_at_once_are_one_holder() -> None:
    bench = fresh()
    record = record_of(bench, bench.approved(DEPOSIT, TEN))
    gate = threading.Barrier(20, timeout=30)

    def claim(number: int) -> str:
        gate.wait()
        try:
            return bench.tally.store.claim(record, worker=f"w-{number}", lease_ms=LEASE_MS).owner
        except (Conflict, LeaseLost):
            return ""

    with ThreadPoolExecutor(20) as pool:
        owners = [owner for owner in pool.map(claim, range(20)) if owner]
    assert owners == [record_of(bench, record.id).owner]
    assert bench.events(record.id).count("claimed") == 1
    assert counted(bench)[counters.conflict("approved")] == 19


@pytest.mark.parametrize("point", ["after_claim", "after_intent", "after_effect", "after_reply"])
def test_a_key_in_use_refuses_other_content_while_its_action_runs(point: str) -> None:
    bench = fresh()
    id = bench.approved(DEPOSIT, TEN, key="k")
    bench.crash(id, point)
    with nothing_stored(bench), pytest.raises(KeyConflict, match=id):
        bench.propose(DEPOSIT, {**TEN, "amount": "11"}, key="k")
    assert bench.propose(DEPOSIT, TEN, key="k").id == id
    assert bench.run(id).state in {State.COMMITTED, State.UNKNOWN}


# --- a note in between ---------------------------------------------------------------------------


def test_a_move_follows_a_note_that_came_in_between() -> None:
    bench = fresh()
    record = claimed(bench)
    bench.tally.acknowledge(record.id, by="oncall")
    assert intend(bench, record).state is State.RUNNING
    assert bench.events(record.id)[-3:] == ["claimed", "acknowledged", "intent"]


def test_a_move_that_was_done_and_then_noted_upon_is_not_done_again() -> None:
    bench = fresh()
    record = claimed(bench)
    intend(bench, record, lease="leave")
    bench.tally.acknowledge(record.id, by="oncall")
    found = intend(bench, record, lease="leave")
    assert found.lines == bench.tally.store.load(record.id).lines
    assert bench.events(record.id).count("intent") == 1


def test_a_note_that_was_written_and_then_noted_upon_is_found_again() -> None:
    bench = fresh()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    store = bench.tally.store
    store.move(record, record.state, who="anna", evidence=NOTE)
    bench.tally.acknowledge(record.id, by="oncall")
    found = store.move(record, record.state, who="anna", evidence=NOTE)
    assert bench.events(record.id) == ["proposed", "noted", "acknowledged"]
    assert found.lines == store.load(record.id).lines


# --- what no longer fits -------------------------------------------------------------------------


@contextmanager
def only_counted(bench: Bench, towards: str) -> Iterator[None]:
    """Nothing changes inside but the counter of refused moves towards this state."""
    space, field = bench.tally.store.keys.counters, counters.conflict(towards)
    before = key_space(bench)
    yield
    after = key_space(bench)
    before[space] = {name: n for name, n in before[space].items() if name != field}
    refused = after[space].pop(field, "0")
    assert after == before
    assert int(refused) > 0


def stale(record: Record, **changed: Any) -> Record:
    """The same record as somebody believes it to be who is mistaken in one point."""
    if "token" in changed:
        last = dataclasses.replace(record.lines[-1], token=changed["token"])
    elif "state" in changed:
        last = dataclasses.replace(record.lines[-1], to_state=changed["state"])
    else:
        return dataclasses.replace(record, **changed)
    return dataclasses.replace(record, lines=(*record.lines[:-1], last))


@pytest.mark.parametrize(
    ("changed", "what", "error"),
    [
        ({"state": State.RUNNING}, "state", Conflict),
        ({"token": 7}, "token", LeaseLost),
        ({"owner": "0123456789abcdef"}, "owner", LeaseLost),
        ({"owner": ""}, "owner", Conflict),
    ],
    ids=["state", "token", "owner", "no-owner"],
)
def test_a_move_from_a_stale_view_changes_nothing_and_is_counted(
    changed: dict[str, Any], what: str, error: type[TallystickError]
) -> None:
    bench = fresh()
    record = claimed(bench)
    with only_counted(bench, "running"), pytest.raises(error) as raised:
        intend(bench, stale(record, **changed))
    assert raised.value.facts["what"] == what


def test_a_move_from_a_view_that_was_overtaken_changes_nothing() -> None:
    bench = fresh()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    bench.tally.reject(record.id, by="anna", reason="no")
    with only_counted(bench, "cancelled"), pytest.raises(Conflict, match="state: rejected"):
        bench.tally.store.move(record, State.CANCELLED, who="x", evidence={"event": "cancelled"})


def test_a_holder_whose_lease_ran_out_moves_nothing_that_needs_it() -> None:
    bench = fresh()
    record = claimed(bench)
    lease_runs_out(bench, record.id)
    with only_counted(bench, "running"), pytest.raises(LeaseLost, match="lease"):
        intend(bench, record)


def test_a_lease_runs_out_by_the_clock_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    bench = fresh()
    record = claimed(bench)
    assert record_of(bench, record.id).leased
    clock.pass_by(seconds=LEASE_MS / 1000 + 1)
    assert not record_of(bench, record.id).leased
    with pytest.raises(LeaseLost):
        intend(bench, record)


def test_what_the_target_answered_is_stored_though_the_lease_ran_out_if_nobody_took_it() -> None:
    bench = fresh()
    record = intend(bench, claimed(bench))
    lease_runs_out(bench, record.id)
    moved = bench.tally.store.move(
        record,
        State.VERIFYING,
        who="w-1",
        worker="w-1",
        evidence={"event": "replied", "reply": "ok"},
        lease="keep",
        lease_ms=LEASE_MS,
    )
    assert moved.state is State.VERIFYING
    assert not record_of(bench, record.id).leased


def test_a_holder_who_was_replaced_moves_nothing() -> None:
    bench = fresh()
    zombie = claimed(bench)
    lease_runs_out(bench, zombie.id)
    store = bench.tally.store
    store.claim(record_of(bench, zombie.id), worker="w-2", lease_ms=LEASE_MS)
    for lease in ("hold", "keep", "drop", "leave"):
        with only_counted(bench, "running"), pytest.raises(LeaseLost):
            intend(bench, zombie, lease=lease)


def test_dropping_the_lease_gives_it_back_with_the_move() -> None:
    bench = fresh()
    record = claimed(bench)
    moved = intend(bench, record, lease="drop", due_ms=-1)
    found = record_of(bench, record.id)
    assert (moved.owner, found.owner, found.leased) == ("", "", False)
    assert redis_of(bench).zscore(bench.tally.store.keys.due, record.id) is None


def test_an_action_that_does_not_exist_is_neither_read_nor_moved() -> None:
    bench = fresh()
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    other = dataclasses.replace(
        record, content=dataclasses.replace(record.content, id="0123456789abcdef")
    )
    with nothing_stored(bench):
        with pytest.raises(UnknownId):
            bench.tally.store.read("0123456789abcdef")
        with pytest.raises(UnknownId):
            bench.tally.store.move(other, State.CANCELLED, who="x", evidence=NOTE)


# --- leases --------------------------------------------------------------------------------------


def test_a_lease_is_renewed_by_its_holder_only() -> None:
    bench = fresh()
    record = claimed(bench)
    store = bench.tally.store
    with nothing_stored(bench):
        assert not store.renew(record.id, "0123456789abcdef", lease_ms=LEASE_MS)
    due = redis_of(bench).zscore(store.keys.due, record.id)
    assert store.renew(record.id, record.owner, lease_ms=10 * LEASE_MS)
    assert record_of(bench, record.id).lease_ms > LEASE_MS
    assert redis_of(bench).zscore(store.keys.due, record.id) > due


def test_a_lease_that_ran_out_is_not_renewed() -> None:
    bench = fresh()
    record = claimed(bench)
    lease_runs_out(bench, record.id)
    with nothing_stored(bench):
        assert not bench.tally.store.renew(record.id, record.owner, lease_ms=LEASE_MS)


def test_a_lease_is_released_by_its_holder_only_and_the_action_is_due_at_once() -> None:
    bench = fresh()
    record = claimed(bench)
    store = bench.tally.store
    with nothing_stored(bench):
        assert not store.release(record.id, "0123456789abcdef")
    assert store.due_now() == 0
    assert store.release(record.id, record.owner)
    assert store.due_now() == 1
    assert not record_of(bench, record.id).leased
    with nothing_stored(bench):
        assert not store.release(record.id, record.owner)


def test_a_release_does_not_schedule_what_nobody_has_to_look_at() -> None:
    bench = fresh()
    record = claimed(bench)
    bench.tally.store.unschedule(record.id)
    assert bench.tally.store.release(record.id, record.owner)
    assert redis_of(bench).zscore(bench.tally.store.keys.due, record.id) is None


# --- what is due ---------------------------------------------------------------------------------


def sweep(bench: Bench, who: str = "r-1", limit: int = 10) -> list[tuple[str, str]] | None:
    return bench.tally.store.sweep(who, lock_ms=5000, limit=limit, again_ms=2000)


def due(bench: Bench, id: str, at: int = 0) -> None:
    redis_of(bench).zadd(bench.tally.store.keys.due, {id: at})


def test_one_recoverer_is_active_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    bench = fresh()
    assert sweep(bench, "r-1") == []
    with nothing_stored(bench):
        assert sweep(bench, "r-2") is None
    bench.tally.store.step_down("r-2")
    assert sweep(bench, "r-2") is None
    bench.tally.store.step_down("r-1")
    assert sweep(bench, "r-2") == []
    clock.pass_by(seconds=6)
    assert sweep(bench, "r-1") == []


def test_a_sweep_takes_what_is_due_and_puts_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    bench = fresh()
    ids = [bench.propose(DEPOSIT, TEN).id for _ in range(3)]
    for at, id in enumerate(ids[:2]):
        due(bench, id, at)
    first = sweep(bench)
    assert first
    assert [id for id, _ in first] == ids[:2]
    assert sweep(bench) == []
    clock.pass_by(seconds=3)
    second = sweep(bench)
    assert second
    assert {id for id, _ in second} == set(ids[:2])
    assert not {dispatch for _, dispatch in first} & {dispatch for _, dispatch in second}


def test_a_sweep_takes_no_more_than_it_may_oldest_first() -> None:
    bench = fresh()
    for at, name in enumerate("abc"):
        due(bench, name, at + 1)
    found = sweep(bench, limit=2)
    assert found
    assert [id for id, _ in found] == ["a", "b"]
    assert bench.tally.store.due_now() == 1


def test_only_what_is_scheduled_is_postponed() -> None:
    bench = fresh()
    due(bench, "a")
    bench.tally.store.postpone("a", until_ms=99_999_999_999_999)
    assert bench.tally.store.due_now() == 0
    with nothing_stored(bench):
        bench.tally.store.postpone("b", until_ms=1)


def test_work_horses_that_fall_silent_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    store = fresh().tally.store
    assert store.heartbeat(["w-1", "w-2"]) == 2
    clock.pass_by(seconds=10)
    assert store.heartbeat(["w-2", "w-3"]) == 3
    clock.pass_by(seconds=10)
    assert store.heartbeat([]) == 2
    assert store.living() == ["w-2", "w-3"]
    store.forget(["w-2"])
    store.forget([])
    assert store.snapshot().workers == 1


# --- alerts --------------------------------------------------------------------------------------


def test_an_alert_stays_until_it_is_delivered() -> None:
    bench = fresh()
    store = bench.tally.store
    for _ in range(2):
        id = bench.approved(DEPOSIT, TEN)
        redis_of(bench).hset(store.keys.action(id), "content", "{}")
        bench.run(id)
    first, second = store.alerts()
    assert store.alerts(limit=1) == [first]
    assert store.snapshot().undelivered_alerts == 2
    store.delivered(first)
    assert store.alerts() == [second]
    store.delivered(first)
    assert store.alerts() == [second]
    assert json.loads(second)["reason"] == "corrupt"


# --- the stop switch -----------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [EVERYTHING, DEPOSIT])
def test_a_stop_refuses_claim_and_intent_and_counts_no_conflict(scope: str) -> None:
    bench = fresh()
    held = claimed(bench)
    waiting = record_of(bench, bench.approved(DEPOSIT, TEN))
    bench.tally.store.switch(scope, stop=True, who="oncall", reason="look")
    with nothing_stored(bench):
        with pytest.raises(Stopped, match="stopped"):
            bench.tally.store.claim(waiting, worker="w", lease_ms=LEASE_MS)
        with pytest.raises(Stopped):
            intend(bench, held)
    bench.tally.store.switch(scope, stop=False, who="oncall", reason="")
    assert intend(bench, held).state is State.RUNNING


def test_the_switch_writes_a_chain_that_says_who_when_and_why() -> None:
    bench = fresh()
    store = bench.tally.store
    store.switch(DEPOSIT, stop=True, who="anna", reason="look")
    store.note_operation(who="w-1", event="rewound", why="less history")
    store.switch(DEPOSIT, stop=False, who="ben", reason="fine")
    lines = store.operations()
    assert [(line.seq, line.event, line.who) for line in lines] == [
        (1, "stopped", "anna"),
        (2, "rewound", "w-1"),
        (3, "started", "ben"),
    ]
    for before, after in itertools.pairwise(lines):
        assert (after.prev, after.prev_at) == (before.hash, before.at)
    assert store.stops() == {}


def test_a_stop_that_someone_else_came_before_is_written_after_theirs() -> None:
    bench = fresh()
    other = Store(bench.redis, bench.settings.namespace)

    class Slow(Store):
        def _script(self, name: str, keys: Any, args: Any, **given: Any) -> Any:
            if name == "stop" and not other.operations():
                other.switch("mail.send", stop=True, who="ben", reason="too")
            return super()._script(name, keys, args, **given)

    slow = Slow(bench.redis, bench.settings.namespace)
    slow.switch(DEPOSIT, stop=True, who="anna", reason="look")
    assert [line.who for line in other.operations()] == ["ben", "anna"]
    assert set(other.stops()) == {DEPOSIT, "mail.send"}


def test_a_tampered_operations_journal_does_not_keep_the_switch_from_closing() -> None:
    bench = fresh()
    record = claimed(bench)
    redis_of(bench).rpush(bench.tally.store.keys.operations, "not a line")
    bench.tally.stop(by="oncall", reason="something is wrong")
    with pytest.raises(Stopped):
        intend(bench, record)


# --- keys of a foreign type ----------------------------------------------------------------------


def foreign(bench: Bench, key: str) -> None:
    """Somebody else's value stands where ours should be."""
    kind = redis_of(bench).type(key)
    redis_of(bench).delete(key)
    if kind in {"string", "none"}:
        redis_of(bench).sadd(key, "foreign")
    else:
        redis_of(bench).set(key, "foreign")


PROPOSE_KEYS: dict[str, Callable[[Store], str]] = {
    "idempotency": lambda store: store.keys.idempotency("k"),
    "index": lambda store: store.keys.index(State.WAITING_FOR_APPROVAL),
    "due": lambda store: store.keys.due,
    "counters": lambda store: store.keys.counters,
}


@pytest.mark.parametrize(
    "name",
    [
        "idempotency",
        "index",
        "due",
        "counters",
    ],
)
def test_a_proposal_on_a_key_of_a_foreign_type_writes_nothing(name: str) -> None:
    bench = fresh()
    bench.propose(DEPOSIT, TEN)
    foreign(bench, PROPOSE_KEYS[name](bench.tally.store))
    with nothing_stored(bench), pytest.raises(StoreRefused):
        bench.propose(DEPOSIT, TEN, key="k")


MOVE_KEYS = [
    "action",
    "journal",
    "lease",
    "due",
    "index_from",
    "index_to",
    "counters",
    "outbox",
    "attention",
    "stops",
    "leases",
    "marks",
]


def key_of(store: Store, name: str, id: str) -> str:
    match name:
        case "index_from":
            return store.keys.index(State.APPROVED)
        case "index_to":
            return store.keys.index(State.RUNNING)
        case "action" | "journal" | "lease":
            return str(getattr(store.keys, name)(id))
    return str(getattr(store.keys, name))


@pytest.mark.parametrize("name", MOVE_KEYS)
def test_a_move_on_a_key_of_a_foreign_type_writes_nothing(name: str) -> None:
    bench = fresh()
    record = claimed(bench)
    foreign(bench, key_of(bench.tally.store, name, record.id))
    with nothing_stored(bench), pytest.raises((Tampered, StoreError), match="foreign type"):
        intend(bench, record)


@pytest.mark.parametrize("name", ["due", "outbox", "attention", "stops", "leases", "marks"])
def test_a_shared_key_of_a_foreign_type_is_told_by_a_typed_error(name: str) -> None:
    bench = fresh()
    id = bench.propose(DEPOSIT, TEN).id
    foreign(bench, key_of(bench.tally.store, name, id))
    with nothing_stored(bench), pytest.raises(TallystickError, match="foreign type"):
        bench.tally.approve(id, by="anna")


def test_counters_of_a_foreign_type_stop_every_read_and_condemn_no_action() -> None:
    bench = fresh()
    record = claimed(bench)
    foreign(bench, bench.tally.store.keys.counters)
    with nothing_stored(bench), pytest.raises(StoreRefused, match="counters"):
        bench.tally.store.read(record.id)


@pytest.mark.parametrize("name", ["action", "journal", "lease"])
def test_reading_a_key_of_a_foreign_type_says_which(name: str) -> None:
    bench = fresh()
    record = claimed(bench)
    key = key_of(bench.tally.store, name, record.id)
    foreign(bench, key)
    with nothing_stored(bench):
        assert bench.tally.store.read(record.id).malformed == key
        assert bench.state(record.id) is State.CORRUPT


@pytest.mark.parametrize("name", ["due", "counters", "outbox", "attention", "leases", "marks"])
def test_a_quarantine_that_fails_has_changed_nothing(name: str) -> None:
    """No failure is silent: an action is not closed as corrupt without its alert."""
    bench = fresh()
    store = bench.tally.store
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(store.keys.action(id), "content", "{}")
    stored = store.read(id)
    foreign(bench, key_of(store, name, id))
    before = key_space(bench)
    try:
        store.quarantine(stored, "content", worker="w-1")
    except StoreError:
        assert key_space(bench) == before
    else:
        assert len(bench.alerts()) == 1


class Impatient(Store):
    """A store that notices when it is asked the same for ever."""

    asked = 0

    def _script(self, name: str, keys: Any, args: Any, **given: Any) -> Any:
        self.asked += name == "quarantine"
        assert self.asked <= 20, "it would go on for ever"
        return super()._script(name, keys, args, **given)


@pytest.mark.parametrize(
    "name",
    [
        "action",
        "journal",
        "lease",
        "counters",
    ],
)
def test_a_worker_that_meets_a_key_of_a_foreign_type_comes_to_an_end(name: str) -> None:
    bench = fresh()
    id = bench.approved(DEPOSIT, TEN)
    foreign(bench, key_of(bench.tally.store, name, id))
    bench.tally.store = Impatient(bench.redis, bench.settings.namespace)
    with contextlib.suppress(StoreError):
        bench.run(id)
    assert name == "counters" or bench.state(id) is State.CORRUPT
    assert name == "counters" or len(bench.alerts()) == 1


def test_a_damaged_action_that_a_person_closed_stays_closed() -> None:
    bench = fresh()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(bench.tally.store.keys.action(id), "content", "{}")
    bench.run(id)
    bench.tally.resolve(id, to="abandoned", by="oncall", evidence="looked at the bank")
    assert bench.run(id).state is State.ABANDONED
    assert len(bench.alerts()) == 1


@pytest.mark.parametrize("name", ["stops", "operations"])
def test_the_switch_on_a_key_of_a_foreign_type_writes_nothing(name: str) -> None:
    bench = fresh()
    bench.tally.stop(by="anna", reason="look")
    foreign(bench, key_of(bench.tally.store, name, ""))
    with nothing_stored(bench), pytest.raises(StoreRefused):
        bench.tally.stop(by="anna", reason="look")


@pytest.mark.parametrize("call", ["history", "read"])
def test_a_history_that_is_no_number_is_told_by_a_typed_error(call: str) -> None:
    bench = fresh()
    store = bench.tally.store
    id = bench.propose(DEPOSIT, TEN).id
    redis_of(bench).hset(store.keys.counters, counters.MOVES, "many")
    with pytest.raises(TallystickError, match="many"):
        store.history() if call == "history" else store.read(id)


def test_a_counter_that_somebody_made_no_number_begins_anew_and_stops_no_move() -> None:
    bench = fresh()
    record = claimed(bench)
    field = counters.transition(DEPOSIT, "running")
    redis_of(bench).hset(bench.tally.store.keys.counters, field, "many")
    assert intend(bench, record).state is State.RUNNING
    assert bench.tally.store.snapshot().counters[field] == 1


def test_an_action_that_halts_calls_people_though_it_cannot_be_counted() -> None:
    bench = fresh()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_intent")
    field = counters.transition(DEPOSIT, "unknown")
    redis_of(bench).hset(bench.tally.store.keys.counters, field, "many")
    with contextlib.suppress(StoreError):
        bench.run(id)
    assert bench.state(id) is not State.UNKNOWN or len(bench.alerts()) == 1


def test_a_stop_that_cannot_be_read_is_shown_as_such() -> None:
    bench = fresh()
    redis_of(bench).hset(bench.tally.store.keys.stops, EVERYTHING, "not a line")
    (shown,) = bench.tally.stops()
    assert (shown.evidence["scope"], shown.who) == (EVERYTHING, "?")
    assert "cannot be read" in shown.evidence["why"]


@pytest.mark.parametrize("scope", [EVERYTHING, DEPOSIT])
def test_a_stop_that_cannot_be_read_still_stops(scope: str) -> None:
    bench = fresh()
    record = claimed(bench)
    redis_of(bench).hset(bench.tally.store.keys.stops, scope, "not a line")
    with nothing_stored(bench), pytest.raises(Stopped):
        intend(bench, record)
    bench.tally.start(by="oncall", action=None if scope == EVERYTHING else scope)
    assert intend(bench, record).state is State.RUNNING


# --- errors in our words -------------------------------------------------------------------------


class Broken(fakeredis.FakeRedis):
    """A client whose server answers every command with this."""

    error: Exception | None = None

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if self.error:
            raise self.error
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        (LinkError("Connection refused"), StoreUnavailable, "Connection refused"),
        (LinkTimeout("Timeout reading"), StoreUnavailable, "TALLYSTICK_REDIS_URL"),
        (ReadOnlyError("READONLY You can't write"), StoreReadOnly, "primary"),
        (
            ResponseError("Write command is not allowed against read only replica."),
            StoreReadOnly,
            "Sentinel",
        ),
        (OutOfMemoryError("OOM command not allowed"), StoreFull, "maxmemory"),
        (ResponseError("OOM command not allowed when used memory"), StoreFull, "noeviction"),
        (ResponseError("NOPERM this user has no permissions"), StoreRefused, "NOPERM"),
        (ResponseError("MISCONF Redis is configured to\nsave"), StoreSuspended, "MISCONF"),
        (ResponseError("NOREPLICAS Not enough good replicas"), StoreSuspended, "replicas"),
        (
            ResponseError("Command # 1 (SREM x y) of pipeline caused error: NOREPLICAS Not enough"),
            StoreSuspended,
            "nothing was stored",
        ),
        (MasterDownError("Link with MASTER is down"), StoreReadOnly, "primary"),
    ],
    ids=[
        "refused",
        "timeout",
        "readonly",
        "replica",
        "oom",
        "oom-script",
        "noperm",
        "misconf",
        "noreplicas",
        "noreplicas-pipeline",
        "masterdown",
    ],
)
def test_what_the_server_says_is_told_in_our_words(
    error: Exception, kind: type[TallystickError], remedy: str
) -> None:
    client = Broken(decode_responses=True, server=fakeredis.FakeServer())
    store = Store(client, "tallystick", url="redis://db")
    calls: list[Callable[[], object]] = [
        store.ping,
        store.stops,
        store.due_now,
        store.alerts,
        store.living,
        store.snapshot,
        lambda: store.read("a"),
        lambda: store.renew("a", "b", lease_ms=1),
        lambda: store.heartbeat(["w"]),
        lambda: store.bump("x"),
    ]
    client.error = error
    for call in calls:
        with pytest.raises(kind, match=remedy) as raised:
            call()
        assert type(raised.value) is kind
        assert "redis://db" in str(raised.value)
        assert "\n" not in str(raised.value)
    client.error = None
    assert key_names(client) == []


def key_names(client: Any) -> list[str]:
    return list(client.keys())


def test_a_store_that_answers_again_is_used_again() -> None:
    client = Broken(decode_responses=True, server=fakeredis.FakeServer())
    store = Store(client, "tallystick")
    client.error = LinkError("reset")
    with pytest.raises(StoreUnavailable):
        store.ping()
    client.error = None
    assert store.heartbeat(["w"]) == 1


def test_a_counter_is_not_bumped_twice_for_a_lost_reply() -> None:
    class Lossy(fakeredis.FakeRedis):
        def hincrby(self, *args: Any, **given: Any) -> Any:
            super().hincrby(*args, **given)
            raise LinkError("reset")

    client = Lossy(decode_responses=True, server=fakeredis.FakeServer())
    store = Store(client, "tallystick")
    with pytest.raises(StoreUnavailable):
        store.bump("foreign_job")
    assert store.snapshot().counters == {"foreign_job": 1}


# --- reading -------------------------------------------------------------------------------------


def test_ids_come_newest_first_and_no_more_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    bench = fresh()
    ids = []
    for _ in range(4):
        ids.append(bench.propose(DEPOSIT, TEN).id)
        clock.pass_by(seconds=1)
    bench.tally.cancel(ids[0], by="x")
    store = bench.tally.store
    assert store.ids(State.WAITING_FOR_APPROVAL) == [ids[3], ids[2], ids[1]]
    assert store.ids(limit=2) == [ids[0], ids[3]]
    assert store.ids(limit=None) == [ids[0], ids[3], ids[2], ids[1]]
    assert store.ids(State.COMMITTED) == []


def test_namespaces_share_nothing() -> None:
    bench = fresh()
    id = bench.propose(DEPOSIT, TEN, key="k").id
    other = Store(bench.redis, "elsewhere")
    assert other.ids() == []
    assert other.owner_of("k")[0] is None
    with pytest.raises(UnknownId):
        other.read(id)


def test_nothing_that_carries_meaning_expires() -> None:
    bench = fresh()
    record = claimed(bench)
    sweep(bench)
    bench.tally.stop(by="oncall", reason="look")
    store, redis = bench.tally.store, redis_of(bench)
    fading = {key for key in redis.scan_iter() if redis.pttl(key) >= 0}
    assert fading == {store.keys.lease(record.id), store.keys.recoverer}
