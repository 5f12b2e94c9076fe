"""A worker dies at every point of a run, and the next one at every point of the recovery.

Whatever the points are, the action comes to rest, the bank's own ledger shows at most one effect,
and what is claimed is what the ledger shows. Crashes are exceptions here (see `Bench.crash`); real
kills of real processes are tested with a server.
"""

from dataclasses import dataclass

import pytest

from tallystick import Compensate, InBand, Protection, State
from tallystick.jobs.giving_up import MAX_DEATHS
from tallystick.jobs.states import AT_REST, HALTED
from tallystick.testing import POINTS, Bench
from tests.driving import alerts, crash_if_passed, record_of, until_rest
from tests.targets import (
    COMPENSATED,
    DEPOSIT,
    RESTORE,
    Bank,
    Trouble,
    deposit,
    restore,
)

TEN = {"account": "alice", "amount": "10"}

FORWARD = POINTS[:6]
"""Points of a run whose effect lands as approved."""
IN_BAND = (*FORWARD, "after_rollback_intent", "before_undo", "after_undo")
COMPENSATING = (*FORWARD, "after_rollback_intent", "after_compensation")

SENDS_AGAIN = {Protection.KEYED, Protection.VERSIONED, Protection.FENCED}

CALLS = {
    State.UNKNOWN: {"outcome_unknown", "verification_failed"},
    State.ROLLBACK_FAILED: {"rollback_failed"},
    State.FAILED: {"not_applied"},
    State.CORRUPT: {"corrupt"},
}
"""What a person must have been told when an action ends there."""

by_protection = pytest.mark.parametrize("protection", Protection)


@dataclass
class Crashed:
    """An action that has come to rest after its workers died."""

    bank: Bank
    bench: Bench
    id: str
    state: State

    def check(self) -> None:
        """What holds for every protection and every crash."""
        record = record_of(self.bench, self.id)  # its chain unseals
        assert self.state in AT_REST
        assert self.bank.effects(DEPOSIT) <= 1
        assert self.bank.effects(RESTORE) <= 1
        assert len(self.bank.calls) == len(set(self.bank.calls)) or self.resendable
        tokens = [line.token for line in record.events("claimed")]
        assert tokens == sorted(set(tokens))
        assert record.attempts <= 3
        told = alerts(self.bench, self.id)
        assert not (needed := CALLS.get(self.state)) or needed & {told[-1]}
        assert bool(told) == bool(record.events("halted", "refuted", "not_applied"))

    @property
    def resendable(self) -> bool:
        return self.bank.protection in SENDS_AGAIN


def crashed(
    protection: Protection,
    first: str,
    second: str | None,
    *,
    rollback: InBand | Compensate | None = None,
    troubles: tuple[Trouble, ...] = (),
) -> Crashed:
    """Approve a deposit, let its first worker die at `first`, the next at `second`, and recover."""
    bank = Bank(protection, troubles=list(troubles))
    bench = Bench(deposit(bank, **({"rollback": rollback} if rollback else {})), restore(bank))
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, first)
    if second:
        crash_if_passed(bench, id, second)
    return Crashed(bank, bench, id, until_rest(bench, id).state)


# --- the effect lands as approved ----------------------------------------------------------------


@pytest.mark.parametrize("second", [None, *FORWARD])
@pytest.mark.parametrize("first", FORWARD)
@by_protection
def test_an_effect_happens_at_most_once_wherever_workers_die(
    protection: Protection, first: str, second: str | None
) -> None:
    end = crashed(protection, first, second)
    end.check()
    assert end.state is (State.COMMITTED if can_be_proved(end) else State.UNKNOWN)
    if end.state is State.COMMITTED:
        assert end.bank.effects() == 1
        assert end.bank.balance() == 110


def can_be_proved(end: Crashed) -> bool:
    """What each protection promises of an effect that lands as approved."""
    if end.bank.protection is Protection.READABLE:
        return end.bank.effects() == 1
    if end.bank.protection is Protection.BLIND:
        return "replied" in end.bench.events(end.id)
    return True


# --- the answer is lost, or the target refuses ---------------------------------------------------


@pytest.mark.parametrize("trouble", [Trouble.BREAKS_BEFORE, Trouble.BREAKS_AFTER])
@pytest.mark.parametrize("second", [None, *FORWARD])
@by_protection
def test_a_lost_answer_is_not_taken_for_a_yes_or_a_no(
    protection: Protection, second: str | None, trouble: Trouble
) -> None:
    end = crashed(protection, "after_claim", second, troubles=(trouble,))
    end.check()
    assert end.state in {State.COMMITTED, State.UNKNOWN}
    assert end.state is not State.COMMITTED or end.bank.effects() == 1
    if protection in SENDS_AGAIN:
        assert end.state is State.COMMITTED


@pytest.mark.parametrize("second", [None, *FORWARD])
@by_protection
def test_a_refusal_is_failed_only_while_nobody_else_can_have_sent(
    protection: Protection, second: str | None
) -> None:
    end = crashed(protection, "after_claim", second, troubles=(Trouble.REFUSES,))
    end.check()
    if end.state is State.FAILED:
        assert end.bank.effects() == 0
        assert record_of(end.bench, end.id).attempts == 1
    if end.state is State.COMMITTED:
        assert end.bank.effects() == 1


# --- it lands wrong, and is undone ---------------------------------------------------------------


def check_the_undoing(end: Crashed) -> None:
    """A wrong effect is never committed, and never called undone while it shows."""
    end.check()
    if end.bank.effects(DEPOSIT):
        assert end.state in {State.ROLLED_BACK, *HALTED}
    if end.state is State.ROLLED_BACK:
        assert (end.bank.effects(DEPOSIT), end.bank.effects(RESTORE)) == (1, 1)
        assert end.bank.balance() == 100
    if end.bank.effects(RESTORE):
        assert "refuted" in end.bench.events(end.id)


@pytest.mark.parametrize("second", [None, *IN_BAND])
@pytest.mark.parametrize("first", IN_BAND)
@by_protection
def test_an_undo_in_band_happens_at_most_once_wherever_workers_die(
    protection: Protection, first: str, second: str | None
) -> None:
    end = crashed(protection, first, second, troubles=(Trouble.LANDS_WRONG,))
    check_the_undoing(end)


READABLE_ONES = sorted(set(Protection) - {Protection.BLIND})
"""A blind deposit has no state to compensate to."""


@pytest.mark.parametrize("second", [None, *COMPENSATING])
@pytest.mark.parametrize("first", COMPENSATING)
@pytest.mark.parametrize("protection", READABLE_ONES)
def test_a_compensation_happens_at_most_once_wherever_workers_die(
    protection: Protection, first: str, second: str | None
) -> None:
    troubles = (Trouble.LANDS_WRONG,)
    end = crashed(protection, first, second, rollback=COMPENSATED, troubles=troubles)
    check_the_undoing(end)
    children = [one for one in end.bench.tally.list() if one.compensates == end.id]
    assert len(children) <= 1
    assert len(children) == 1 or end.state is not State.ROLLED_BACK


@pytest.mark.parametrize("first", FORWARD)
@pytest.mark.parametrize("protection", READABLE_ONES)
def test_a_worker_that_dies_over_a_compensation_leaves_it_to_the_next(
    protection: Protection, first: str
) -> None:
    bank = Bank(protection, troubles=[Trouble.LANDS_WRONG])
    bench = Bench(deposit(bank, rollback=COMPENSATED), restore(bank))
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_compensation")
    (child,) = [one.id for one in bench.tally.list() if one.compensates == id]

    bench.crash(child, first)

    end = Crashed(bank, bench, id, until_rest(bench, id).state)
    check_the_undoing(end)
    assert bench.at_rest(child)
    rolled_back = end.state is State.ROLLED_BACK
    assert rolled_back == (bench.state(child) is State.COMMITTED) == (bank.balance() == 100)


def test_a_record_names_its_compensation_also_if_the_worker_died_before_it_was_noted() -> None:
    bank = Bank(troubles=[Trouble.LANDS_WRONG])
    bench = Bench(deposit(bank, rollback=COMPENSATED), restore(bank))
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_compensation")
    (child,) = [one.id for one in bench.tally.list() if one.compensates == id]
    assert until_rest(bench, id).rollback["compensation"] == child


def test_waiting_for_a_compensation_does_not_fill_the_journal() -> None:
    bank = Bank(troubles=[Trouble.LANDS_WRONG])
    bench = Bench(deposit(bank, rollback=COMPENSATED), restore(bank))
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "after_compensation")
    bench.run(id)
    lines = len(bench.events(id))
    for _ in range(5):
        assert bench.run(id).state is State.ROLLING_BACK
    assert len(bench.events(id)) == lines


# --- many deaths ---------------------------------------------------------------------------------


@by_protection
def test_a_worker_that_dies_at_every_claim_is_given_up_before_anything_is_sent(
    protection: Protection,
) -> None:
    bank = Bank(protection)
    bench = Bench(deposit(bank))
    id = bench.approved(DEPOSIT, TEN)
    for _ in range(MAX_DEATHS):
        bench.crash(id, "after_claim")
    found = bench.run(id)
    assert found.state is State.UNKNOWN
    assert "died over it; nothing was sent" in found.why
    assert bank.calls == []


@pytest.mark.parametrize("protection", sorted(SENDS_AGAIN))
def test_an_effect_that_never_lands_is_not_sent_for_ever(protection: Protection) -> None:
    bank = Bank(protection, troubles=[Trouble.BREAKS_BEFORE] * 99)
    bench = Bench(deposit(bank))
    id = bench.approved(DEPOSIT, TEN)
    end = until_rest(bench, id)
    assert end.attempts == 3
    assert end.state in {State.FAILED, State.UNKNOWN}
    assert bank.effects() == 0


@by_protection
@pytest.mark.parametrize("point", FORWARD)
def test_a_target_that_cannot_be_read_is_not_guessed(protection: Protection, point: str) -> None:
    bank = Bank(protection)
    bench = Bench(deposit(bank))
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, point)
    bank.unreadable = True
    bench.run(id)
    bank.unreadable = False
    end = Crashed(bank, bench, id, until_rest(bench, id).state)
    end.check()
    assert end.state is not State.COMMITTED or bank.effects() == 1


def test_a_fence_that_cannot_be_raised_leads_to_a_person() -> None:
    bank = Bank(Protection.FENCED, fence_broken=True)
    bench = Bench(deposit(bank))
    id = bench.approved(DEPOSIT, TEN)
    assert until_rest(bench, id).state in {State.UNKNOWN, State.FAILED}
    assert alerts(bench, id)
    assert bank.effects() == 0
