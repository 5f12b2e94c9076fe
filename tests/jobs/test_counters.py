"""Every number comes from the journal: what is counted is what was written, whoever wrote it."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick import Protection, State, TallystickError
from tallystick.jobs.audit import audit
from tallystick.jobs.record import Line
from tallystick.metrics import counters
from tallystick.testing import POINTS, Bench
from tests.driving import (
    TEN,
    counted,
    crash_if_passed,
    lease_runs_out,
    opened,
    redis_of,
    until_rest,
)
from tests.forging import action_key
from tests.targets import (
    COMPENSATED,
    DEPOSIT,
    RESTORE,
    TWO,
    Bank,
    Trouble,
    deposit,
    restore,
)

CALLS = {
    State.ROLLING_BACK: "verification_failed",
    State.ROLLBACK_FAILED: "rollback_failed",
    State.UNKNOWN: "outcome_unknown",
    State.FAILED: "not_applied",
    State.CORRUPT: "corrupt",
}


def journals(bench: Bench) -> list[list[Line]]:
    """Every line of every action, as it is stored."""
    keys, redis = bench.tally.store.keys, redis_of(bench)
    ids = bench.tally.store.ids(limit=None)
    return [[Line.parse(text) for text in redis.lrange(keys.journal(id), 0, -1)] for id in ids]


def names(bench: Bench) -> dict[str, str]:
    """The journal's first hash -> the type of the action."""
    return {bench.tally.history(found.id)[0].hash: found.action for found in bench.tally.list()}


def family(bench: Bench, *labels: str) -> dict[str, int]:
    """The counters of one family, without those that are zero."""
    prefix = counters.SEPARATOR.join(labels) + counters.SEPARATOR
    found = counted(bench)
    return {name: n for name, n in found.items() if name.startswith(prefix) and n}


def check(bench: Bench) -> None:
    """The counters agree with the journals, the indexes and the open alerts."""
    lines = [line for journal in journals(bench) for line in journal]
    assert counted(bench).get(counters.MOVES, 0) == len(lines)
    check_transitions(bench)
    check_indexes(bench)
    check_attention(bench)
    assert audit(bench.tally.store, bench.tally.keyring).differences == ()


def check_transitions(bench: Bench) -> None:
    kinds = names(bench)
    expected = Counter(
        counters.transition(kinds[journal[0].hash], line.to_state)
        for journal in journals(bench)
        for line in journal
        if line.from_state != line.to_state
    )
    assert family(bench, "transitions") == dict(expected)


def check_indexes(bench: Bench) -> None:
    expected = Counter(journal[-1].to_state for journal in journals(bench))
    found = bench.tally.store.snapshot().actions
    assert {state: n for state, n in found.items() if n} == dict(expected)


def check_attention(bench: Bench) -> None:
    raised = redis_of(bench).hgetall(bench.tally.store.keys.attention)
    found = {name: n for name, n in counted(bench).items() if name.startswith("attention|")}
    assert all(n >= 0 for n in found.values())
    assert {name: n for name, n in found.items() if n} == dict(Counter(raised.values()))


# --- one story at a time -------------------------------------------------------------------------


def test_a_straight_run_counts_each_state_once() -> None:
    _, bench = opened()
    bench.run(bench.approved(DEPOSIT, TEN))
    check(bench)
    assert family(bench, "transitions") == {
        counters.transition(DEPOSIT, state): 1
        for state in ("waiting_for_approval", "approved", "running", "verifying", "committed")
    }
    assert family(bench, "preconditions") == {counters.precondition(DEPOSIT, "holds"): 1}
    assert family(bench, "verifications") == {counters.verification(DEPOSIT, "holds"): 1}
    assert family(bench, "decisions") == {counters.decision("approved"): 1}
    assert family(bench, "attention") == family(bench, "conflicts") == {}


@pytest.mark.parametrize(
    ("decide", "outcome"),
    [
        (lambda bench, id: bench.tally.reject(id, by="anna", reason="no"), "rejected"),
        (lambda bench, id: bench.tally.cancel(id, by="anna"), "cancelled"),
        (lambda bench, id: bench.tally.approve(id, by="anna"), "approved"),
    ],
    ids=["no", "withdrawn", "yes"],
)
def test_each_decision_is_counted_by_its_outcome(
    decide: Callable[[Bench, str], object], outcome: str
) -> None:
    _, bench = opened()
    decide(bench, bench.propose(DEPOSIT, TEN).id)
    check(bench)
    assert family(bench, "decisions") == {counters.decision(outcome): 1}


def test_votes_below_the_quorum_are_no_decision() -> None:
    _, bench = opened(policy=TWO)
    id = bench.propose(DEPOSIT, TEN).id
    bench.tally.approve(id, by="anna")
    assert family(bench, "decisions") == {}
    bench.tally.approve(id, by="ben")
    assert family(bench, "decisions") == {counters.decision("approved"): 1}
    check(bench)


def test_a_compensation_is_not_counted_as_a_decision() -> None:
    """Nobody decided on it a second time: the decisions are those of people."""
    bank, bench = opened(rollback=COMPENSATED)
    bank.troubles = [Trouble.LANDS_WRONG]
    bench.run(bench.approved(DEPOSIT, TEN))
    check(bench)
    assert family(bench, "decisions") == {counters.decision("approved"): 1}


@pytest.mark.parametrize(
    ("troubles", "outcome"),
    [
        ([Trouble.LANDS_WRONG], "rolled_back"),
        ([Trouble.LANDS_WRONG, Trouble.REFUSES], "rollback_failed"),
    ],
    ids=["undone", "not-undone"],
)
def test_each_rollback_is_counted_by_its_outcome(troubles: list[Trouble], outcome: str) -> None:
    bank, bench = opened()
    bank.troubles = troubles
    bench.run(bench.approved(DEPOSIT, TEN))
    check(bench)
    assert family(bench, "rollbacks") == {counters.rollback(DEPOSIT, outcome): 1}
    assert family(bench, "verifications") == {counters.verification(DEPOSIT, "fails"): 1}


def test_what_a_person_settles_is_not_counted_as_a_rollback() -> None:
    _, bench = opened("blind")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_effect")
    bench.run(id)
    bench.tally.resolve(id, to="rolled_back", by="eve", evidence="called them")
    check(bench)
    assert family(bench, "rollbacks") == {}


def test_an_alert_that_changes_its_reason_is_counted_under_the_new_one() -> None:
    bank, bench = opened()
    bank.troubles = [Trouble.LANDS_WRONG, Trouble.REFUSES]
    bench.run(bench.approved(DEPOSIT, TEN))
    check(bench)
    assert family(bench, "attention") == {counters.attention(DEPOSIT, "rollback_failed"): 1}


def test_the_alerts_of_two_actions_are_two() -> None:
    bank, bench = opened()
    ids = [bench.approved(DEPOSIT, {**TEN, "account": name}) for name in ("a", "b")]
    for id in ids:
        bank.troubles = [Trouble.LANDS_WRONG]
        bench.run(id)
    field = counters.attention(DEPOSIT, "verification_failed")
    assert counted(bench)[field] == 2
    bench.tally.acknowledge(ids[0], by="eve")
    assert counted(bench)[field] == 1
    check(bench)


def test_a_damaged_action_is_counted_as_a_security_event_once() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "owner", "x")
    bench.run(id)
    bench.run(id)
    assert counted(bench)[counters.security_event("corrupt_record")] == 1
    assert counted(bench)[counters.attention(DEPOSIT, "corrupt")] == 1
    check_attention(bench)
    bench.tally.resolve(id, to="abandoned", by="eve", evidence="x")
    assert counted(bench)[counters.attention(DEPOSIT, "corrupt")] == 0
    check_attention(bench)


def test_a_damaged_action_is_counted_under_its_own_type_to_the_end() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "owner", "x")
    bench.run(id)
    bench.tally.resolve(id, to="abandoned", by="eve", evidence="x")
    assert counted(bench)[counters.transition(DEPOSIT, "corrupt")] == 1
    assert counted(bench)[counters.transition(DEPOSIT, "abandoned")] == 1


def test_a_name_that_a_forger_made_up_is_no_label() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(action_key(bench, id), "content", '{"action":"made up"}')
    bench.run(id)
    assert not [name for name in counted(bench) if "made up" in name]


def test_the_time_in_a_state_is_counted_when_it_is_left() -> None:
    _, bench = opened()
    bench.run(bench.approved(DEPOSIT, TEN))
    for state in ("waiting_for_approval", "approved", "running", "verifying"):
        found = family(bench, "stage", state)
        found.pop(f"stage|{state}|sum", None)
        bounds = {str(bound) for bound in counters.STAGE_BOUNDS_MS[state]} | {"inf"}
        assert sum(found.values()) == 1
        assert {name.split("|")[2] for name in found} <= bounds


def test_a_late_result_is_counted_as_refused_by_the_fence() -> None:
    bank = Bank()
    bench = Bench(deposit(bank))
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_claim")
    store = bench.tally.store
    line = store.load(id)
    store.move(line, line.state, who="w", evidence={"event": "late_evidence", "reply": "ok"})
    assert counted(bench)[counters.FENCING_REJECTIONS] == 1
    check(bench)


# --- whatever happens ----------------------------------------------------------------------------

Deed = Callable[[Bench, Bank, str], object]


def _meddle(bench: Bench, bank: Bank, id: str) -> None:
    bank.meddle()


def _turn(bench: Bench, bank: Bank, id: str) -> None:
    bank.unreadable = not bank.unreadable


def _misbehave(trouble: Trouble) -> Deed:
    return lambda bench, bank, id: bank.troubles.append(trouble)


def _crash(point: str) -> Deed:
    return lambda bench, bank, id: crash_if_passed(bench, id, point)


DEEDS: dict[str, Deed] = {
    "run": lambda bench, bank, id: bench.run(id),
    "lease over": lambda bench, bank, id: lease_runs_out(bench, id),
    "approve": lambda bench, bank, id: bench.tally.approve(id, by="anna"),
    "reject": lambda bench, bank, id: bench.tally.reject(id, by="ben", reason="no"),
    "cancel": lambda bench, bank, id: bench.tally.cancel(id, by="anna"),
    "acknowledge": lambda bench, bank, id: bench.tally.acknowledge(id, by="eve"),
    "resolve": lambda bench, bank, id: bench.tally.resolve(
        id, to="abandoned", by="eve", evidence="x"
    ),
    "again": lambda bench, bank, id: bench.propose(
        DEPOSIT, TEN, key=bench.tally.get(id).key or None
    ),
    "another": lambda bench, bank, id: bench.propose(DEPOSIT, TEN),
    "stop": lambda bench, bank, id: bench.tally.stop(by="eve", reason="x"),
    "start": lambda bench, bank, id: bench.tally.start(by="eve"),
    "meddle": _meddle,
    "unreadable": _turn,
    **{trouble.name.lower(): _misbehave(trouble) for trouble in Trouble},
    **{point: _crash(point) for point in POINTS},
}


@given(
    protection=st.sampled_from(sorted(Protection)),
    rollback=st.booleans(),
    deeds=st.lists(st.tuples(st.sampled_from(sorted(DEEDS)), st.integers(0, 3)), max_size=14),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_counters_follow_the_journal_whatever_happens(
    protection: Protection, rollback: bool, deeds: list[tuple[str, int]]
) -> None:
    bank = Bank(protection)
    plan = {"rollback": COMPENSATED} if rollback and protection is not Protection.BLIND else {}
    bench = Bench(deposit(bank, **plan), restore(bank))
    bench.approved(DEPOSIT, TEN)
    for deed, which in deeds:
        ids = sorted(bench.tally.store.ids())
        with suppress(TallystickError):  # refused; the counters must not show it
            DEEDS[deed](bench, bank, ids[which % len(ids)])
        check(bench)
    assert_nothing_was_lost(bench, bank)


def assert_nothing_was_lost(bench: Bench, bank: Bank) -> None:
    """Everything comes to rest, and the bank did nothing twice."""
    bank.unreadable = False
    bench.tally.start(by="eve")
    for id in bench.tally.store.ids():
        if bench.state(id) is not State.WAITING_FOR_APPROVAL:
            until_rest(bench, id)
        key = bench.tally.get(id).key
        assert bank.effects(DEPOSIT, key=key) <= 1
        assert bank.effects(RESTORE, key=key) <= 1
    check(bench)
