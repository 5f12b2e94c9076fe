"""Rollbacks that were entered twice, or called done although they were not."""

from typing import Any

import pytest

from tallystick import InBand, Protection, State
from tallystick.jobs.registry import Registry
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.driving import TEN, alerts, counted, lease_runs_out, nothing_stored, opened, until_rest
from tests.jobs.test_service import beside
from tests.targets import (
    COMPENSATED,
    DEPOSIT,
    RESTORE,
    Bank,
    Trouble,
    deposit,
    restore,
    with_method,
)

ROLLBACKS = pytest.mark.parametrize("rollback", [InBand("undo"), COMPENSATED], ids=["in", "by"])


def wrong(rollback: Any, protection: Protection = Protection.READABLE) -> tuple[Bank, Bench, str]:
    """An approved action that lands wrong."""
    bank, bench = opened(protection, rollback=rollback)
    bank.troubles = [Trouble.LANDS_WRONG]
    return bank, bench, bench.approved(DEPOSIT, TEN)


@ROLLBACKS
def test_a_rollback_that_is_over_is_entered_by_no_late_wake_up(rollback: Any) -> None:
    """Case 47: an old wake-up comes after the rollback."""
    bank, bench, id = wrong(rollback)
    assert bench.run(id).state is State.ROLLED_BACK
    with nothing_stored(bench):
        for one in bench.tally.store.ids():
            bench.run(one)
    assert bank.effects(RESTORE) == 1
    assert bank.balance() == 100


@pytest.mark.parametrize("lost", [False, True], ids=["held", "lease lost"])
@pytest.mark.parametrize("protection", Protection)
def test_a_second_wake_up_in_the_midst_of_an_undo_undoes_nothing_more(
    protection: Protection, lost: bool
) -> None:
    """Case 47: two wake-ups for one rollback, the second while the first is being carried out."""
    bank = Bank(protection)
    kind = deposit(bank)
    entered: list[str] = []

    def undo(self: Any, params: Any, before: Any, result: Any, context: Any) -> Any:
        if id not in entered:
            entered.append(id)
            if lost:
                lease_runs_out(bench, id)
            other.run(id)
        return kind().undo(params, before, result, context)  # type: ignore[attr-defined]

    bench = Bench(with_method(kind, "undo", undo), restore(bank))
    other = beside(bench)
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)
    bench.run(id)
    assert until_rest(bench, id).state in {State.ROLLED_BACK, State.ROLLBACK_FAILED}
    assert bank.effects() == 1
    assert bank.effects(RESTORE) == 1
    if not lost and protection is not Protection.BLIND:
        assert bench.state(id) is State.ROLLED_BACK


def test_two_workers_that_begin_a_compensation_begin_one() -> None:
    """Case 47: the first one's wake-up for it is lost, and a second one enters the rollback."""
    bank, bench, id = wrong(COMPENSATED)
    bench.crash(id, "after_compensation")
    assert bench.state(id) is State.ROLLING_BACK
    assert until_rest(beside(bench), id).state is State.ROLLED_BACK
    assert bank.effects(RESTORE) == 1
    assert len(bench.tally.list()) == 2


@ROLLBACKS
@pytest.mark.parametrize(
    "trouble", [Trouble.REFUSES, Trouble.BREAKS_BEFORE, Trouble.DOES_NOTHING], ids=lambda t: t.name
)
def test_a_rollback_that_did_not_happen_is_not_called_done(rollback: Any, trouble: Trouble) -> None:
    """Case 103: the compensation fails, says yes and does nothing, or gives no answer."""
    bank, bench, id = wrong(rollback)
    bank.troubles.append(trouble)
    assert until_rest(bench, id).state is State.ROLLBACK_FAILED
    assert bank.effects(RESTORE) == 0
    assert alerts(bench, id)[-1] == "rollback_failed"
    assert bench.tally.get(id).rollback["outcome"] == "rollback_failed"
    assert id in {one.id for one in bench.tally.list(attention=True)}


def test_a_rollback_of_a_kind_that_a_worker_does_not_know_is_left_to_one_that_does() -> None:
    """Case 103: the worker passes over the kind of the compensation."""
    bank, bench, id = wrong(COMPENSATED)
    bench.crash(id, "after_rollback_intent")
    ignorant = beside(bench)
    ignorant.tally.registry = Registry([deposit(bank, rollback=COMPENSATED)])
    for _ in range(3):
        assert ignorant.run(id).state is State.ROLLING_BACK
    assert counted(bench)[counters.unknown_type(DEPOSIT)] == 3
    assert bank.effects(RESTORE) == 0
    assert until_rest(bench, id).state is State.ROLLED_BACK
    assert bank.effects(RESTORE) == 1
