"""Frozen workers that wake up after another one has decided, and workers that freeze alone."""

import json
from collections.abc import Iterator

import pytest

from tallystick import Protection
from tests.crash.actions import COMMIT
from tests.crash.arena import Arena
from tests.crash.zombies import Woken, Zombie, play

pytestmark = [pytest.mark.server, pytest.mark.crash]


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with Arena.open() as opened:
        yield opened


def woken(arena: Arena, protection: Protection, point: str, *, alone: bool = False) -> Woken:
    found = play(arena, Zombie(protection, COMMIT, point, alone))
    assert found.outcome.counts
    assert not found.outcome.violations, "\n".join(found.outcome.journal)
    return found


@pytest.mark.parametrize("protection", [Protection.READABLE, Protection.BLIND])
def test_a_zombie_before_its_effect_is_ended_by_the_kernel_s_timer(
    arena: Arena, protection: Protection
) -> None:
    found = woken(arena, protection, "before_set")
    assert (found.decided, found.ended_by) == ("unknown", "SIGALRM")
    assert (found.outcome.state, found.outcome.effects) == ("unknown", 0)


def test_a_zombie_before_its_intent_stores_none(arena: Arena) -> None:
    found = woken(arena, Protection.READABLE, "before intent")
    assert (found.decided, found.ended_by, found.late) == ("committed", "", 0)
    assert found.outcome.effects == 1


def test_a_zombie_after_its_effect_tells_what_it_knows_and_alerts_again(arena: Arena) -> None:
    found = woken(arena, Protection.BLIND, "before replied")
    assert (found.decided, found.ended_by, found.late) == ("unknown", "", 1)
    assert (found.outcome.state, found.outcome.effects) == ("unknown", 1)
    told = [text for text in arena.told() if found.outcome.id in text]
    assert [json.loads(text)["event"] for text in told] == ["halted", "late_evidence"]


def test_a_zombie_behind_a_raised_fence_has_no_effect(arena: Arena) -> None:
    found = woken(arena, Protection.FENCED, "after_fence")
    assert (found.decided, found.ended_by) == ("committed", "")
    assert (found.outcome.state, found.outcome.effects) == ("committed", 1)


def test_a_work_horse_that_freezes_alone_in_an_effect_is_killed_by_its_parent(
    arena: Arena,
) -> None:
    found = woken(arena, Protection.READABLE, "before_set", alone=True)
    assert (found.decided, found.ended_by) == ("unknown", "SIGKILL")
    assert (found.outcome.state, found.outcome.effects) == ("unknown", 0)
    assert "(deadline), holding action" in arena.log()
