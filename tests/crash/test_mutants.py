"""The matrix can see: each broken variant of the protocol is caught, and each check catches one."""

from collections.abc import Iterator

import pytest

from tests.crash.actions import COMPENSATED
from tests.crash.broken import MUTANTS
from tests.crash.checker import CHECKS
from tests.crash.inprocess import Place
from tests.crash.mutants import Mutant, hunt

pytestmark = [pytest.mark.server, pytest.mark.crash]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with Place.open() as opened:
        yield opened


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_protocol_is_caught(place: Place, mutant: Mutant) -> None:
    found = hunt(mutant, place)
    assert not found.survived, f"{mutant.name!r} survived {found.scenarios} scenarios: {found}"


def test_the_same_scenarios_break_nothing_when_nothing_is_broken(place: Place) -> None:
    units = {unit for mutant in MUTANTS for unit in mutant.where if unit.path != COMPENSATED}
    for unit in units:
        assert not [one for one in unit.run(place.play) if one.violations]


def test_every_check_must_catch_a_mutant() -> None:
    must = {check for mutant in MUTANTS for check in mutant.by}
    assert {check.__name__ for check in CHECKS} <= must
