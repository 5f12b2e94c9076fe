"""Deploys, stops and starts: code that changed under waiting work, and work that was held."""

from typing import Any, cast

import pytest

from tallystick import Action, State
from tallystick.jobs.states import OPEN
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.driving import TEN, counted, opened, until_rest
from tests.golden.make import bring_about
from tests.golden.types import TYPES, World
from tests.jobs.test_service import beside
from tests.server import actions
from tests.server.conftest import Site, eventually
from tests.targets import COMPENSATED, DEPOSIT, RESTORE, Trouble, deposit, restore


@pytest.mark.server
def test_each_action_that_was_held_runs_once_however_often_all_is_stopped(site: Site) -> None:
    """Case 41: the whole product is stopped and started while actions are due."""
    site.tally.stop(by="oncall", reason="drill")
    ids = [site.approved("item.readable", f"held-{number}") for number in range(12)]
    site.worker("--processes", "2")
    eventually(lambda: site.tally.store.snapshot().workers == 2, "both work-horses are up")
    for done in (2, 5):
        site.tally.start(by="oncall")
        eventually(lambda done=done: len(site.tally.list("committed")) >= done, "some have run")  # type: ignore[misc]
        site.tally.stop(by="oncall", reason="drill")
    site.tally.start(by="oncall")
    assert {site.at_rest(id) for id in ids} == {"committed"}
    assert {actions.effects(f"held-{number}") for number in range(12)} == {1}


NEXT = tuple(cast("type[Action]", type(kind.__name__, (kind,), {"version": 2})) for kind in TYPES)
"""The same types as their next version has them; the old version is gone."""

ENDS = {
    State.APPROVED: State.COMMITTED,
    State.RUNNING: State.UNKNOWN,
    State.VERIFYING: State.COMMITTED,
    State.ROLLING_BACK: State.ROLLED_BACK,
}
"""How an action ends that was in this state when its version came back."""


def deployed(bench: Bench, *types: Any) -> Bench:
    """Workers of another version, on the same store."""
    other = beside(bench)
    other.tally.registry = Bench(*types).tally.registry
    return other


@pytest.mark.parametrize("state", State)
def test_a_deploy_and_its_reversal_harm_no_action(state: State) -> None:
    """Case 43: N, N+1 and N again, with an action of N in each state."""
    bench = Bench(*TYPES)
    id = bring_about(bench, state)
    history, effects = bench.tally.history(id), list(World.effects)
    newer = deployed(bench, *NEXT)
    for _ in range(3):
        newer._runner().run(id)
    assert bench.tally.history(id) == history
    assert effects == World.effects
    moving = state in OPEN - {State.WAITING_FOR_APPROVAL}
    assert counted(bench).get(counters.unknown_type("golden.set"), 0) == (3 if moving else 0)
    if not moving:
        assert bench.run(id).state is state
        return
    bench.tally.store.postpone(id, until_ms=0)
    assert bench.run(id).state is ENDS[state]
    assert len(World.effects) <= 1


def test_what_the_new_version_stored_waits_for_it_while_the_old_one_is_back() -> None:
    """Case 43: an action of N+1, and N again, and N+1 again."""
    World.reset()
    bench = Bench(*TYPES)
    newer = deployed(bench, *NEXT)
    id = newer.approved("golden.set", {"to": 1})
    before = newer.tally.history(id)
    bench._runner().run(id)
    assert newer.tally.history(id) == before
    assert World.effects == []
    assert counted(bench)[counters.unknown_type("golden.set")] == 1
    newer.tally.store.postpone(id, until_ms=0)
    assert newer.run(id).state is State.COMMITTED
    assert len(World.effects) == 1


@pytest.mark.parametrize("point", ["after_rollback_intent", "after_compensation"])
def test_a_rollback_under_way_waits_for_the_version_that_began_it(point: str) -> None:
    """Case 43: N, N+1 and N again, while an action is being compensated."""
    bank, bench = opened(rollback=COMPENSATED)
    bank.troubles = [Trouble.LANDS_WRONG]
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, point)
    stored = {one: bench.tally.history(one) for one in bench.tally.store.ids()}
    for types in (
        [deposit(bank, rollback=COMPENSATED, version=2), restore(bank, version=2)],
        [deposit(bank, rollback=COMPENSATED), restore(bank, version=2)],
    ):
        newer = deployed(bench, *types)
        for one in stored:
            newer._runner().run(one)
    assert {one: bench.tally.history(one) for one in stored} == stored
    assert until_rest(bench, id).state is State.ROLLED_BACK
    assert (bank.effects(), bank.effects(RESTORE)) == (1, 1)
