"""Somebody writes to Redis: what is stored no longer matches its seals, and so does nothing.

Each test damages a record, then lets a worker run the action. The bank's own ledger says whether
anything was done. What a forger can make up who mends every hash is in `test_forgery.py`.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tallystick import State
from tallystick.core import canonical
from tallystick.core.errors import ActionCorrupt, IllegalMove, TallystickError
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.driving import (
    TEN,
    alerts,
    counted,
    lease_runs_out,
    nothing_stored,
    opened,
    record_of,
    redis_of,
)
from tests.forging import (
    Step,
    action_key,
    can_be_resolved,
    found_corrupt,
    journal_key,
    put,
    steps_of,
    stored,
)
from tests.targets import DEPOSIT

FIELDS = ("content", "digest", "state", "seq", "head", "at", "token", "owner")

Damage = Callable[[Bench, str], Any]


# --- the stored hash -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIELDS)
def test_an_altered_field_makes_it_corrupt(name: str) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), name, "tampered")
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_makes_it_corrupt(name: str) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hdel(action_key(bench, id), name)
    found_corrupt(bench, bank, id)


def test_a_field_too_many_makes_it_corrupt() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "approved", "yes")
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("how", ["altered", "missing"])
def test_a_person_can_close_whatever_field_was_damaged(name: str, how: str) -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    if how == "altered":
        redis_of(bench).hset(action_key(bench, id), name, "tampered")
    else:
        redis_of(bench).hdel(action_key(bench, id), name)
    bench.run(id)
    can_be_resolved(bench, id)


@pytest.mark.parametrize("name", sorted(set(FIELDS) - {"owner"}))
@pytest.mark.parametrize("point", ["after_intent", "after_reply"])
def test_damage_in_flight_is_said_to_have_perhaps_happened(name: str, point: str) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, point)
    redis_of(bench).hset(action_key(bench, id), name, "0")
    found_corrupt(bench, bank, id)
    last = json.loads(redis_of(bench).lindex(journal_key(bench, id), -1))
    assert last["evidence"]["may_have_happened"] is True or name == "state"


def test_a_state_that_was_set_to_corrupt_still_calls_a_person() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "state", "corrupt")
    assert bench.run(id).state is State.CORRUPT
    assert bank.calls == []
    assert alerts(bench, id) == ["corrupt"]


def test_a_list_survives_an_action_whose_record_was_deleted() -> None:
    _, bench = opened()
    gone, kept = bench.approved(DEPOSIT, TEN), bench.approved(DEPOSIT, TEN)
    redis_of(bench).delete(action_key(bench, gone))
    assert kept in [found.id for found in bench.tally.list()]


def test_an_action_whose_record_was_deleted_is_not_passed_over_in_silence() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).delete(action_key(bench, id))
    bench._runner().run(id)
    assert bank.calls == []
    assert alerts(bench, id) == ["corrupt"]


# --- the journal ---------------------------------------------------------------------------------


def alter_line(at: int, name: str, value: Any) -> Damage:
    def damage(bench: Bench, id: str) -> None:
        key = journal_key(bench, id)
        line = json.loads(redis_of(bench).lindex(key, at)) | {name: value}
        redis_of(bench).lset(key, at, canonical.dumps(line).decode())

    return damage


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seq", 9),
        ("at", 1),
        ("from", "committed"),
        ("to", "committed"),
        ("who", "mallory"),
        ("worker", "mallory"),
        ("token", 7),
        ("evidence", {}),
        ("prev", "0" * 64),
        ("prev_at", 2),
        ("hash", "0" * 64),
    ],
)
def test_an_altered_journal_line_makes_it_corrupt(at: int, name: str, value: Any) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_reply")
    assert len(bench.events(id)) == 5
    alter_line(at, name, value)(bench, id)
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize("at", range(5))
def test_a_removed_journal_line_makes_it_corrupt(at: int) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_reply")
    key = journal_key(bench, id)
    redis_of(bench).lrem(key, 1, redis_of(bench).lindex(key, at))
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize("kept", range(5))
def test_a_truncated_journal_makes_it_corrupt(kept: int) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_reply")
    if kept:
        redis_of(bench).ltrim(journal_key(bench, id), 0, kept - 1)
    else:
        redis_of(bench).delete(journal_key(bench, id))
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize("at", range(4))
def test_reordered_journal_lines_make_it_corrupt(at: int) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_reply")
    key = journal_key(bench, id)
    one, two = redis_of(bench).lrange(key, at, at + 1)
    redis_of(bench).lset(key, at, two)
    redis_of(bench).lset(key, at + 1, one)
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize("at", range(5))
def test_a_repeated_journal_line_makes_it_corrupt(at: int) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_reply")
    key = journal_key(bench, id)
    redis_of(bench).rpush(key, redis_of(bench).lindex(key, at))
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", "nonsense", '{"at":NaN}', "[" * 100_000],
    ids=["empty", "object", "list", "null", "nonsense", "nan", "deep"],
)
def test_a_line_that_cannot_be_read_makes_it_corrupt(text: str) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).rpush(journal_key(bench, id), text)
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize("space", [" ", "\n"])
def test_a_line_in_another_spelling_makes_it_corrupt(space: str) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    key = journal_key(bench, id)
    redis_of(bench).lset(key, 1, redis_of(bench).lindex(key, 1).replace(":", ":" + space, 1))
    found_corrupt(bench, bank, id)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token", "1"),
        ("token", None),
        ("seq", "3"),
        ("to", ["approved"]),
        ("to", "somewhere"),
        ("from", ["approved"]),
        ("who", 5),
        ("at", "1700000000003"),
        ("evidence", {"event": "claimed", "vote": {"who": "mallory"}}),
        ("evidence", {"event": "claimed", "vote": {"purpose": "tallystick.vote.v1", "at": 1}}),
    ],
)
def test_a_well_chained_line_of_wrong_types_makes_it_corrupt(name: str, value: Any) -> None:
    """The forger mends every hash; what is left is what the line says."""
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    record = record_of(bench, id)
    line = record.tip.line(State.APPROVED, who="mallory", evidence={"event": "note"})
    field = {"to": "to_state", "from": "from_state"}.get(name, name)
    forged = replace(replace(line, at=record.at), **{field: value})
    put(bench, id, [*record.lines, forged])
    with pytest.raises(ActionCorrupt):
        bench.tally.cancel(id, by="anna")
    found_corrupt(bench, bank, id)


# --- keys of another type ------------------------------------------------------------------------


@pytest.mark.timeout(5)
@pytest.mark.parametrize("which", ["action", "journal", "lease"])
def test_a_key_of_the_action_that_became_something_else_makes_it_corrupt(which: str) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    key = getattr(bench.tally.store.keys, which)(id)
    redis_of(bench).delete(key)
    redis_of(bench).sadd(key, "a set")
    assert bench.tally.get(id).state is State.CORRUPT
    assert bench.run(id).state is State.CORRUPT
    assert bank.calls == []
    assert alerts(bench, id) == ["corrupt"]
    can_be_resolved(bench, id)


SHARED = ("due", "counters", "outbox", "attention")


@pytest.mark.timeout(5)
@pytest.mark.parametrize("which", [*SHARED, "index"])
def test_a_shared_key_that_became_something_else_stops_a_proposal_whole(which: str) -> None:
    bank, bench = opened()
    key = shared_key(bench, which)
    redis_of(bench).set(key, "a string")
    try:
        with nothing_stored(bench):
            bench.propose(DEPOSIT, TEN, key="k")
    except TallystickError:
        redis_of(bench).delete(key)
    except AssertionError:
        assert which in {"outbox", "attention"}  # a proposal does not touch these
    assert bench.propose(DEPOSIT, TEN, key="k").state is State.WAITING_FOR_APPROVAL
    assert bank.calls == []


@pytest.mark.timeout(5)
@pytest.mark.parametrize("which", [*SHARED, "index"])
def test_a_shared_key_that_became_something_else_stops_a_run_before_its_effect(which: str) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    kept, key = f"{which}:kept", shared_key(bench, which, State.APPROVED)
    if redis_of(bench).exists(key):
        redis_of(bench).rename(key, kept)
    redis_of(bench).set(key, "a string")
    with pytest.raises(TallystickError):
        bench.run(id)
    assert bank.calls == []
    redis_of(bench).delete(key)
    if redis_of(bench).exists(kept):
        redis_of(bench).rename(kept, key)
    lease_runs_out(bench, id)
    assert bench.run(id).state is State.COMMITTED


def shared_key(bench: Bench, which: str, state: State = State.WAITING_FOR_APPROVAL) -> str:
    keys = bench.tally.store.keys
    return keys.index(state) if which == "index" else str(getattr(keys, which))


def test_an_idempotency_key_that_became_something_else_is_refused() -> None:
    bank, bench = opened()
    redis_of(bench).sadd(bench.tally.store.keys.idempotency("k"), "a set")
    with nothing_stored(bench), pytest.raises(TallystickError):
        bench.propose(DEPOSIT, TEN, key="k")
    assert bank.calls == []


# --- what is over --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(FIELDS) - {"owner"}))
def test_a_finished_record_that_was_altered_shows_as_corrupt(name: str) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    redis_of(bench).hset(action_key(bench, id), name, "tampered")
    shown = bench.tally.get(id)
    assert shown.state is State.CORRUPT
    assert shown.why
    assert bank.effects() == 1


def test_a_finished_record_that_was_altered_can_be_resolved_without_a_worker() -> None:
    """Nothing wakes a worker for it any more, so the error's own remedy must work."""
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    redis_of(bench).hset(action_key(bench, id), "digest", "tampered")
    can_be_resolved(bench, id)


def test_a_finished_record_set_back_to_approved_is_not_run_again() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    redis_of(bench).hset(action_key(bench, id), "state", "approved")
    assert bench.run(id).state is State.CORRUPT
    assert bank.effects() == 1


def test_a_damaged_record_does_not_show_as_committed_on_a_forged_resolution() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "state", "committed")
    redis_of(bench).rpush(journal_key(bench, id), '{"event":"resolved"}')
    assert bench.tally.get(id).state is State.CORRUPT
    assert bank.effects() == 0


def test_a_resolution_that_nobody_signed_is_not_believed() -> None:
    bank, bench = opened("blind")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    assert bench.run(id).state is State.UNKNOWN
    record = record_of(bench, id)
    resolved: Step = (State.COMMITTED, {"event": "resolved", "evidence": "trust me"})
    stored(bench, record.content, [*steps_of(record), resolved])
    assert bench.tally.get(id).state is State.CORRUPT
    assert bank.effects() == 0


def test_what_a_person_closed_is_not_closed_otherwise_in_silence() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "digest", "tampered")
    bench.run(id)
    can_be_resolved(bench, id)
    with nothing_stored(bench), pytest.raises(IllegalMove, match="abandoned"):
        bench.tally.resolve(id, to="committed", by="eve", evidence="another opinion")


def test_a_late_wake_up_does_not_reopen_what_a_person_closed() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "digest", "tampered")
    bench.run(id)
    can_be_resolved(bench, id)
    told = len(bench.alerts())
    assert bench.run(id).state is State.ABANDONED
    assert len(bench.alerts()) == told
    assert bank.calls == []


@pytest.mark.parametrize("verb", ["approve", "reject", "cancel", "acknowledge"])
def test_nobody_decides_on_a_damaged_record(verb: str) -> None:
    bank, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    redis_of(bench).hset(action_key(bench, id), "digest", "tampered")
    given = {"reason": "no"} if verb == "reject" else {}
    with pytest.raises(ActionCorrupt, match="tallystick history"):
        getattr(bench.tally, verb)(id, by="anna", **given)
    assert bench.tally.get(id).state is State.CORRUPT
    assert bank.calls == []


def test_a_damaged_record_is_quarantined_once_however_often_it_is_woken() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "owner", "tampered")
    for _ in range(3):
        bench.run(id)
    assert alerts(bench, id) == ["corrupt"]
    assert bank.calls == []
    assert counted(bench)[counters.attention(DEPOSIT, "corrupt")] == 1


def test_the_history_of_a_damaged_record_shows_the_lines_that_can_be_read() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    alter_line(2, "who", "mallory")(bench, id)
    assert bench.events(id) == ["proposed", "vote", "intent", "replied", "verified"]
