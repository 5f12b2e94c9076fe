"""The matrix can see: each broken variant of the protocol is caught, and each check catches one."""

from collections.abc import Iterator

import pytest

from tests.crash.checker import CHECKS
from tests.crash.inprocess import Place
from tests.crash.mutants import MUTANTS, Caught, Mutant, hunt

pytestmark = [pytest.mark.server, pytest.mark.crash]

SEEN: dict[str, Caught] = {}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with Place.open() as opened:
        yield opened


def caught(mutant: Mutant, place: Place) -> Caught:
    if mutant.name not in SEEN:
        SEEN[mutant.name] = hunt(mutant, place)
    return SEEN[mutant.name]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_protocol_is_caught(place: Place, mutant: Mutant) -> None:
    found = caught(mutant, place)
    assert found.violated, f"{mutant.name!r} survived {found.scenarios} scenarios"


def test_the_same_scenarios_break_nothing_when_nothing_is_broken(place: Place) -> None:
    for unit in {unit for mutant in MUTANTS for unit in mutant.where}:
        assert not [one for one in unit.run(place.play) if one.violations]


def test_every_check_catches_something(place: Place) -> None:
    checks = {check for mutant in MUTANTS for check in caught(mutant, place).checks}
    assert {check.__name__ for check in CHECKS} <= checks
