"""The audit finds whatever is stored otherwise than the journals say, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from tallystick import State
from tallystick.jobs.audit import Report, audit
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.driving import TEN, key_space, opened, record_of, redis_of
from tests.forging import action_key
from tests.targets import DEPOSIT, Trouble


def audited(bench: Bench) -> Report:
    return audit(bench.tally.store, bench.tally.keyring)


def found(bench: Bench) -> dict[str, tuple[str, str]]:
    """What was found: where -> (stored, recounted)."""
    return {one.where: (one.stored, one.recounted) for one in audited(bench).differences}


def busy_bench() -> tuple[Bench, str]:
    """A bench with actions that ended well and badly, and the id of one that waits for a person."""
    bank, bench = opened()
    bench.run(bench.approved(DEPOSIT, TEN))
    bench.tally.reject(bench.propose(DEPOSIT, TEN).id, by="anna", reason="no")
    bench.propose(DEPOSIT, TEN)
    id = bench.approved(DEPOSIT, TEN)
    bank.troubles = [Trouble.LANDS_WRONG]
    bench.run(id)
    while bench.tally.store.totals().at <= record_of(bench, id).at:
        pass  # in the millisecond of the last line a count is a range
    return bench, id


def test_a_store_that_nobody_touched_agrees_with_its_journals() -> None:
    bench, _ = busy_bench()
    before = key_space(bench)
    report = audited(bench)
    assert report.differences == ()
    assert report.unbelieved == ()
    assert report.actions == 4
    assert report.lines == int(redis_of(bench).hget(bench.tally.store.keys.counters, "moves"))
    assert key_space(bench) == before


def test_an_empty_store_agrees_with_itself() -> None:
    report = audited(opened()[1])
    assert (report.actions, report.lines, report.differences) == (0, 0, ())


Meddle = Callable[[Any, Any, str], object]

COMMITTED = counters.transition(DEPOSIT, "committed")
FAILED = counters.verification(DEPOSIT, "fails")
WAITS = counters.attention(DEPOSIT, "verification_failed")

COUNTED: dict[str, tuple[Meddle, dict[str, tuple[str, str]]]] = {
    "one too many": (
        lambda redis, keys, id: redis.hincrby(keys.counters, COMMITTED, 1),
        {f"counter {COMMITTED}": ("2", "1")},
    ),
    "one is lost": (
        lambda redis, keys, id: redis.hdel(keys.counters, FAILED),
        {f"counter {FAILED}": ("0", "1")},
    ),
    "of a type that never was": (
        lambda redis, keys, id: redis.hset(keys.counters, "rollbacks|made.up|rolled_back", 7),
        {"counter rollbacks|made.up|rolled_back": ("7", "0")},
    ),
    "no number": (
        lambda redis, keys, id: redis.hset(keys.counters, "decisions|approved", "many"),
        {"counter decisions|approved": ("-1", "2")},
    ),
    "fewer lines than there are": (
        lambda redis, keys, id: redis.hincrby(keys.counters, counters.MOVES, -3),
        {"counter moves": ("{fewer}", "{lines}")},
    ),
    "a time in a state is lost": (
        lambda redis, keys, id: redis.hincrby(keys.counters, "stage|approved|inf", -1),
        {"counter stage|approved|count": ("1", "2")},
    ),
    "an open call is not counted": (
        lambda redis, keys, id: redis.hset(keys.counters, WAITS, 0),
        {f"counter {WAITS}": ("0", "1")},
    ),
    "an open call is gone": (
        lambda redis, keys, id: redis.hdel(keys.attention, id),
        {"action {id}: attention": ("nothing", WAITS), f"counter {WAITS}": ("1", "0")},
    ),
    "not in the index": (
        lambda redis, keys, id: redis.zrem(keys.index("rolled_back"), id),
        {
            "action {id}: index": ("nothing", "rolled_back"),
            "index rolled_back": ("0", "1"),
        },
    ),
    "in two indexes": (
        lambda redis, keys, id: redis.zadd(keys.index("running"), {id: 1}),
        {
            "action {id}: index": ("running, rolled_back", "rolled_back"),
            "index running": ("1", "0"),
        },
    ),
    "listed, and never there": (
        lambda redis, keys, id: redis.zadd(keys.index("approved"), {"ghost": 1}),
        {
            "action ghost: is listed": ("approved", "no record and no journal"),
            "index approved": ("1", "0"),
        },
    ),
    "due, and never there": (
        lambda redis, keys, id: redis.zadd(keys.due, {"ghost": 1}),
        {"action ghost: is listed": ("due", "no record and no journal")},
    ),
    "claimed, and at rest": (
        lambda redis, keys, id: redis.zadd(keys.leases, {id: 1}),
        {"action {id}: leases": ("claimed", "at rest")},
    ),
    "the key belongs to nobody": (
        lambda redis, keys, id: redis.delete(keys.idempotency("key-4")),
        {"action {id}: owner of its key key-4": ("nothing", "{id}")},
    ),
    "the key belongs to another": (
        lambda redis, keys, id: redis.set(keys.idempotency("key-4"), "other sha256:x"),
        {"action {id}: owner of its key key-4": ("other", "{id}")},
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_difference_is_found_named_and_the_only_one(name: str) -> None:
    bench, id = busy_bench()
    meddle, expected = COUNTED[name]
    redis, keys = redis_of(bench), bench.tally.store.keys
    lines = int(redis.hget(keys.counters, counters.MOVES))
    meddle(redis, keys, id)
    names = {"id": id, "lines": lines, "fewer": lines - 3}
    assert found(bench) == {
        where.format(**names): (stored.format(**names), recounted.format(**names))
        for where, (stored, recounted) in expected.items()
    }


def test_an_action_that_nobody_will_look_at_is_found() -> None:
    bench, _ = busy_bench()
    waiting = next(iter(bench.tally.list("waiting_for_approval"))).id
    redis_of(bench).zrem(bench.tally.store.keys.due, waiting)
    assert found(bench) == {f"action {waiting}: due": ("never", "somebody must look again")}


def test_a_line_that_was_cut_off_is_found_by_its_seal_and_in_the_counts() -> None:
    bench, id = busy_bench()
    redis_of(bench).rpop(bench.tally.store.keys.journal(id))
    differences = found(bench)
    assert "does not match the journal" in differences[f"action {id}: record"][0]
    assert "counter moves" in differences


def test_a_journal_that_is_gone_is_found() -> None:
    bench, id = busy_bench()
    redis_of(bench).delete(bench.tally.store.keys.journal(id))
    differences = found(bench)
    assert differences[f"action {id}: record"] == ("the journal is gone", "seals that match")
    assert differences["index rolled_back"] == ("1", "0")


def test_a_key_of_a_foreign_type_is_found_and_stops_nothing() -> None:
    bench, id = busy_bench()
    redis_of(bench).delete(action_key(bench, id))
    redis_of(bench).set(action_key(bench, id), "mine now")
    [where] = [where for where in found(bench) if "record" in where]
    assert where == f"action {id}: record"


def test_what_is_closed_as_corrupt_is_named_and_is_no_difference() -> None:
    bench, id = busy_bench()
    redis_of(bench).hset(action_key(bench, id), "content", '{"action":"made up"}')
    bench.run(id)
    assert bench.state(id) is State.CORRUPT
    report = audited(bench)
    assert report.unbelieved == (id,)
    assert report.differences == ()
    bench.tally.resolve(id, to="abandoned", by="eve", evidence="restored by hand")
    assert audited(bench).differences == ()


def test_a_count_that_no_damaged_record_explains_is_found_beside_one() -> None:
    bench, id = busy_bench()
    redis_of(bench).hset(action_key(bench, id), "content", "{}")
    bench.run(id)
    redis_of(bench).hincrby(bench.tally.store.keys.counters, COMMITTED, 5)
    [one] = audited(bench).differences
    assert one.where == f"counter {COMMITTED}"
    assert one.stored == "6"


def test_what_cannot_be_recounted_from_journals_is_left_alone() -> None:
    bench, _ = busy_bench()
    for field in ("replays|x", "conflicts|running", "workhorse_exits|signal", "colour|red"):
        redis_of(bench).hincrby(bench.tally.store.keys.counters, field, 9)
    assert found(bench) == {}
