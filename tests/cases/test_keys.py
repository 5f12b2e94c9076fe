"""Idempotency keys: forgotten, raced for, reused for something else, or taken for an answer."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tallystick import Policy, Protection, State
from tallystick.core.errors import IllegalMove, KeyConflict
from tallystick.testing import Bench
from tests.cases.conftest import command, forget_rq, wake
from tests.driving import TEN, Clock, opened
from tests.server import actions
from tests.server.conftest import Site
from tests.targets import DEPOSIT, Bank, Trouble, deposit, with_method

PARAMS = {"item": "x", "value": "new"}


def at_once(many: int, call: Callable[[int], Any]) -> list[Any]:
    """What so many threads got that all called at once; an exception where one was raised."""

    def caught(number: int) -> Any:
        try:
            return call(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(many) as threads:
        return list(threads.map(caught, range(many)))


@pytest.mark.server
def test_an_approved_action_outlives_everything_that_has_a_time_to_live(site: Site) -> None:
    """Case 19: approved, and no worker for longer than any time to live in the system."""
    id = site.approved("item.keyed", "waits")
    ours = [key for key in command(site, "KEYS", "*") if not key.startswith("rq:")]
    mortal = [key for key in ours if command(site, "PTTL", key) != -1]
    assert mortal == []
    forget_rq(site)
    site.worker()
    assert site.at_rest(id) == "committed"
    again = site.tally.propose(
        "item.keyed", {"item": "waits", "value": "new"}, key="waits", by="producer"
    )
    assert (again.id, actions.effects("waits")) == (id, 1)


def test_an_approval_that_ends_does_so_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 19: what may end is the approval, and that is a step like any other."""
    clock = Clock(monkeypatch)
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    clock.pass_by(seconds=24 * 3600 + 1)
    assert bench.run(id).state is State.EXPIRED
    assert bench.events(id) == ["proposed", "vote", "expired"]
    assert bank.calls == []


@pytest.mark.server
def test_of_fifty_at_once_under_one_key_one_wins_and_all_are_told_so(site: Site) -> None:
    """Case 23: fifty propose, fifty approve and fifty wake-ups execute, each at the same time."""
    propose = site.tally.propose
    found = at_once(
        50, lambda number: propose("item.readable", PARAMS, key="x", by=f"producer-{number}")
    )
    (id,) = {one.id for one in found}
    assert len(site.tally.list()) == 1

    told = at_once(50, lambda number: site.tally.approve(id, by=f"approver-{number}"))
    losers = [one for one in told if isinstance(one, Exception)]
    assert len(losers) == 49
    winner = site.tally.get(id).approvals[0].who
    assert all(isinstance(one, IllegalMove) and winner in str(one) for one in losers)

    wake(site, id, 50)
    site.worker("--processes", "4")
    assert site.at_rest(id) == "committed"
    assert (site.tally.get(id).attempts, actions.effects("x")) == (1, 1)


class Crowd(actions.SetItem):
    """Needs many people."""

    name = "case.crowd"
    policy = Policy(quorum=40)


@pytest.mark.server
def test_no_vote_of_many_at_once_is_turned_away(site: Site) -> None:
    """Case 23: forty votes that are all needed, cast at the same time."""
    site.tally.registry.add(Crowd)
    id = site.tally.propose("case.crowd", PARAMS, key="x", by="producer").id
    told = at_once(40, lambda number: site.tally.approve(id, by=f"approver-{number}"))
    assert [one for one in told if isinstance(one, Exception)] == []
    assert site.tally.get(id).state == "approved"
    assert len({vote.who for vote in site.tally.get(id).approvals}) == 40


def test_other_content_under_a_key_is_refused_also_while_the_first_runs() -> None:
    """Case 25: a mismatch while the first is being carried out is a mismatch, not "in progress"."""
    bank = Bank()
    told: list[object] = []

    def execute(self: object, params: Any, context: Any) -> Any:
        told.append(bench.propose(DEPOSIT, TEN, key="k"))
        with pytest.raises(KeyConflict) as refused:
            bench.propose(DEPOSIT, {**TEN, "amount": "11"}, key="k")
        told.append(refused.value)
        return kind().execute(params, context)

    kind = deposit(bank)
    bench = Bench(with_method(kind, "execute", execute))
    id = bench.approved(DEPOSIT, TEN, key="k")
    assert bench.run(id).state is State.COMMITTED
    same, other = told
    assert (same.id, same.state) == (id, State.RUNNING)  # type: ignore[attr-defined]
    assert id in str(other)
    assert bank.effects() == 1


@pytest.mark.parametrize(
    ("protection", "trouble", "end", "calls", "effects"),
    [
        (Protection.READABLE, Trouble.BREAKS_AFTER, State.COMMITTED, 1, 1),
        (Protection.READABLE, Trouble.BREAKS_BEFORE, State.UNKNOWN, 1, 0),
        (Protection.BLIND, Trouble.BREAKS_AFTER, State.UNKNOWN, 1, 1),
        (Protection.KEYED, Trouble.BREAKS_AFTER, State.COMMITTED, 1, 1),
        (Protection.KEYED, Trouble.BREAKS_BEFORE, State.COMMITTED, 2, 1),
    ],
)
def test_a_call_without_an_answer_is_neither_done_nor_undone_until_the_target_shows_it(
    protection: Protection, trouble: Trouble, end: State, calls: int, effects: int
) -> None:
    """Case 114: the target's answer does not come in time, which is no sign that it did nothing."""
    bank, bench = opened(protection)
    bank.troubles = [trouble]
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is end
    assert (bench.events(id).count("intent"), bank.effects()) == (calls, effects)
