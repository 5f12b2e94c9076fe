"""A cut of the crash matrix, small enough for every test run; `python -m tests.crash` runs all."""

from collections.abc import Iterator

import pytest

from tallystick import Protection
from tests.crash import plan, real
from tests.crash.actions import COMMIT, COMPENSATED, IN_BAND
from tests.crash.arena import Arena
from tests.crash.checker import CHECKS
from tests.crash.inprocess import NAME, Place
from tests.crash.plan import Unit
from tests.crash.proxy import split
from tests.crash.scenario import Outcome, Scenario, Strike, Victim

pytestmark = [pytest.mark.server, pytest.mark.crash]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with Place.open() as opened:
        yield opened


def told(outcome: Outcome) -> str:
    """A failure that can be read."""
    broken = "\n".join(map(str, outcome.violations))
    return f"{outcome.scenario} {outcome.struck}\n{broken}\n" + "\n".join(outcome.journal)


def check(outcomes: list[Outcome]) -> None:
    assert outcomes, "nothing was played"
    bad = [outcome for outcome in outcomes if outcome.violations]
    assert not bad, told(bad[0])


@pytest.mark.parametrize("protection", Protection)
def test_no_promise_is_broken_wherever_somebody_is_struck(
    place: Place, protection: Protection
) -> None:
    units = [unit for unit in plan.cut() if unit.protection is protection]
    check([outcome for unit in units for outcome in unit.run(place.play)])


@pytest.mark.parametrize("path", plan.PATHS)
@pytest.mark.parametrize("protection", Protection)
def test_every_path_ends_as_it_is_meant_to(place: Place, protection: Protection, path: str) -> None:
    (outcome,) = Unit(protection, path, None).run(place.play)
    check([outcome])
    undone = "rollback_failed" if protection is Protection.BLIND else "rolled_back"
    assert outcome.state == (undone if path in {IN_BAND, COMPENSATED} else "committed")
    assert outcome.effects == 1


def test_a_fenced_compensation_runs_although_its_action_was_claimed_more_often(
    place: Place,
) -> None:
    """A target keeps one fence for a resource, whatever number of actions there are on it."""
    after_claim = 4
    strikes = tuple(Strike(after_claim, Victim.BOTH) for _ in range(4))
    outcome = place.play(Scenario(NAME, Protection.FENCED, COMPENSATED, strikes))
    check([outcome])
    assert outcome.struck == ("after claimed",) * 4
    assert outcome.state == "rolled_back"
    assert sum("claimed" in line for line in outcome.journal) == 4 + 3


def test_real_workers_are_killed_at_the_points_of_an_effect() -> None:
    scenarios = [
        Scenario(real.NAME, protection, COMMIT, (Strike(f"{when}_set", victim),))
        for protection, when, victim in (
            (Protection.KEYED, "before", Victim.HORSE),
            (Protection.FENCED, "inside", Victim.HORSE),
            (Protection.READABLE, "after", Victim.HORSE),
            (Protection.BLIND, "after", Victim.BOTH),
        )
    ]
    scenarios += [
        Scenario(real.NAME, Protection.VERSIONED, COMMIT, (Strike(moment, victim),))
        for moment, victim in ((17, Victim.HORSE), (20, Victim.REDIS), (21, Victim.CONNECTION))
    ]
    with Arena.open() as arena:
        outcomes = [real.play(arena, scenario) for scenario in scenarios]
    assert all(outcome.counts for outcome in outcomes)
    check(outcomes)
    assert [outcome.state for outcome in outcomes] == ["committed"] * 3 + ["unknown"] + [
        "committed"
    ] * 3


def test_the_plans_strike_as_many_as_they_promise() -> None:
    assert len(list(real.scenarios())) >= 250
    assert {unit.protection for unit in plan.whole()} == set(Protection)
    assert {unit.first for unit in plan.whole()} == {None, *plan.SINGLE}


def test_a_request_is_split_off_only_when_it_is_all_there() -> None:
    whole = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
    assert split(whole + whole[:9]) == (whole, whole[:9])
    assert split(whole[:-1]) == (b"", whole[:-1])


def test_every_check_says_what_it_promises() -> None:
    assert all(promise.__doc__ for promise in CHECKS)
