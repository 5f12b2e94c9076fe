"""What the store remembers beside the counts: the newest failure of each, and who is claimed."""

import json
from dataclasses import replace

import pytest

from tallystick import State
from tallystick.metrics import counters
from tallystick.metrics.counters import Mark
from tallystick.testing import Bench
from tests.driving import TEN, lease_runs_out, opened, record_of, redis_of
from tests.forging import action_key
from tests.targets import DEPOSIT, Trouble

TRACE = "0af7651916cd43dd8448eb211c80319c"


def marks(bench: Bench) -> dict[str, Mark]:
    return dict(bench.tally.store.snapshot().marks)


def leases(bench: Bench) -> tuple[int, int]:
    """How many run, and how many ran out unnoticed."""
    snapshot = bench.tally.store.snapshot()
    return snapshot.leases_active, snapshot.leases_overdue


def fails(bench: Bench) -> str:
    """An action whose effect landed wrong, and was undone."""
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    return id


def entered(bench: Bench, id: str, state: str) -> float:
    return next(line.at for line in record_of(bench, id).lines if line.to_state == state) / 1000


def test_the_counters_of_a_failure_remember_the_newest_action() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.LANDS_WRONG]
    fails(bench)
    bank.troubles = [Trouble.LANDS_WRONG]
    id = fails(bench)
    mark = Mark(id, entered(bench, id, "rolling_back"))
    assert marks(bench) == {
        counters.transition(DEPOSIT, "rolling_back"): mark,
        counters.verification(DEPOSIT, "fails"): mark,
    }


@pytest.mark.parametrize(
    ("trouble", "field"),
    [
        (Trouble.REFUSES, counters.transition(DEPOSIT, "failed")),
        (Trouble.LANDS_WRONG, counters.verification(DEPOSIT, "fails")),
    ],
    ids=lambda part: part.name if isinstance(part, Trouble) else "",
)
def test_each_kind_of_failure_is_remembered(trouble: Trouble, field: str) -> None:
    bank, bench = opened()
    bank.troubles = [trouble]
    assert marks(bench).get(field) is None
    assert marks(bench) == {}
    id = fails(bench)
    assert marks(bench)[field].action_id == id


def test_what_goes_well_or_is_settled_by_a_person_is_not_remembered() -> None:
    _, bench = opened("blind")
    bench.run(bench.approved(DEPOSIT, TEN))
    bench.tally.reject(bench.propose(DEPOSIT, TEN).id, by="anna", reason="no")
    before = marks(bench)
    for id in [found.id for found in bench.tally.list(attention=True)]:
        bench.tally.resolve(id, to="committed", by="eve", evidence="called them")
    assert marks(bench) == before
    assert counters.transition(DEPOSIT, "committed") not in before


def test_a_damaged_record_is_remembered_too() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "token", "99")
    bench.run(id)
    assert marks(bench)[counters.security_event("corrupt_record")].action_id == id
    assert marks(bench)[counters.transition(DEPOSIT, "corrupt")].action_id == id


@pytest.mark.parametrize(
    ("trace", "remembered"),
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", TRACE),
        ("", ""),
        ("not a traceparent", ""),
        (f"00-{TRACE}", ""),
    ],
)
def test_the_trace_of_the_proposal_is_remembered_with_the_action(
    trace: str, remembered: str
) -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_intent")
    record = record_of(bench, id)
    birth = record.lines[0]
    born = replace(birth, evidence={**birth.evidence, "trace": trace})
    traced = replace(record, lines=(born, *record.lines[1:]))
    halted = {"event": "halted"}
    bench.tally.store.move(traced, State.UNKNOWN, who="w", evidence=halted, due_ms=-1)
    mark = marks(bench)[counters.transition(DEPOSIT, "unknown")]
    assert (mark.action_id, mark.trace_id) == (id, remembered)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"at":1}', '{"at":"soon","action_id":"x"}', "no json"]
)
def test_what_cannot_be_read_is_left_out(text: str) -> None:
    _, bench = opened()
    redis_of(bench).hset(bench.tally.store.keys.marks, "moves", text)
    assert marks(bench) == {}


def test_an_id_that_somebody_wrote_there_is_no_longer_than_an_id() -> None:
    _, bench = opened()
    told = json.dumps({"at": 1000, "action_id": "x" * 500, "trace_id": "y" * 500})
    redis_of(bench).hset(bench.tally.store.keys.marks, "moves", told)
    assert marks(bench) == {"moves": Mark("x" * 16, 1.0, "y" * 32)}


# --- leases --------------------------------------------------------------------------------------


def test_a_claim_is_a_running_lease_until_the_action_is_settled() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    assert leases(bench) == (0, 0)
    bench.tally.store.claim(record_of(bench, id), worker="w", lease_ms=10_000)
    assert leases(bench) == (1, 0)
    lease_runs_out(bench, id)
    bench.run(id)
    assert leases(bench) == (0, 0)


def test_a_lease_that_ran_out_is_overdue_until_another_worker_takes_over() -> None:
    _, bench = opened("keyed")
    id = bench.approved(DEPOSIT, TEN)
    bench.tally.store.claim(record_of(bench, id), worker="w", lease_ms=1)
    while leases(bench) == (1, 0):
        pass
    assert leases(bench) == (0, 1)
    lease_runs_out(bench, id)
    assert bench.run(id).state is State.COMMITTED
    assert leases(bench) == (0, 0)


def test_the_lease_of_a_dead_work_horse_is_overdue_at_once() -> None:
    _, bench = opened()
    bench.crash(bench.approved(DEPOSIT, TEN), "after_intent")  # which frees what it held
    while leases(bench) != (0, 1):
        pass


def test_renewal_lengthens_a_lease_and_never_brings_one_back() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    store = bench.tally.store
    owner = store.claim(record_of(bench, id), worker="w", lease_ms=10_000).owner
    key = store.keys.leases
    before = redis_of(bench).zscore(key, id)
    assert store.renew(id, owner, lease_ms=60_000)
    assert redis_of(bench).zscore(key, id) > before + 40_000
    redis_of(bench).zrem(key, id)
    assert store.renew(id, owner, lease_ms=60_000)
    assert leases(bench) == (0, 0)


def test_an_action_that_a_person_must_look_at_holds_no_lease() -> None:
    """Even if it was halted while a worker held it, and that worker says something later."""
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    store = bench.tally.store
    store.claim(record_of(bench, id), worker="w", lease_ms=10_000)
    halted = {"event": "rewound", "why": "history was rewound"}
    store.move(record_of(bench, id), State.UNKNOWN, who="w", evidence=halted, due_ms=-1)
    assert leases(bench) == (0, 0)
    late = {"event": "late_evidence", "reply": "ok"}
    store.move(record_of(bench, id), State.UNKNOWN, who="w", evidence=late)
    assert leases(bench) == (0, 0)


def test_a_damaged_record_holds_no_lease() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bench.tally.store.claim(record_of(bench, id), worker="w", lease_ms=10_000)
    redis_of(bench).hset(action_key(bench, id), "token", "99")
    lease_runs_out(bench, id)
    bench.run(id)
    assert leases(bench) == (0, 0)
