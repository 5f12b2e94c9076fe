"""The compensating action: enqueued once, over what our effect left, judged by the world."""

from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from tallystick import Action, Compensate, Context, OutOfBand, State, Verdict
from tallystick.core.errors import UnknownAction
from tallystick.rollback import Rollback
from tallystick.testing import Bench


class World:
    """One number, and what was done to it."""

    value = 0
    slip = 1
    """What the effect lands beside the mark."""
    done: list[int]


class Put(Action):
    """Put a number, which lands wrong."""

    name = "number.put"
    rollback: ClassVar[Rollback] = Compensate(
        "number.reset", lambda params, before, _: {"to": before}
    )

    class Params(BaseModel):
        """The number."""

        to: int

    def observe(self, params: Any) -> Any:
        return World.value

    def execute(self, params: Any, context: Context) -> Any:
        World.value = params.to + World.slip
        World.done.append(World.value)

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected=params.to, observed=now)


class Reset(Put):
    """Put the old number back."""

    name = "number.reset"
    rollback: ClassVar[Rollback] = OutOfBand("docs/runbooks/number.md")

    def execute(self, params: Any, context: Context) -> Any:
        World.value = params.to
        World.done.append(World.value)


@pytest.fixture
def bench() -> Bench:
    World.value, World.slip, World.done = 0, 1, []
    return Bench(Put, Reset)


def child(bench: Bench, id: str) -> str:
    return str(bench.tally.get(id).rollback["compensation"])


def test_a_wrong_effect_is_compensated_and_the_world_is_as_before(bench: Bench) -> None:
    id = bench.approved("number.put", {"to": 5})
    assert bench.run(id).state is State.ROLLED_BACK
    assert World.done == [6, 0]
    undoing = bench.tally.get(child(bench, id))
    assert (undoing.state, undoing.compensates, undoing.attempts) == (State.COMMITTED, id, 1)


@pytest.mark.parametrize("point", ["after_rollback_intent", "after_compensation"])
def test_a_worker_that_dies_while_it_enqueues_leaves_one_compensation(
    bench: Bench, point: str
) -> None:
    id = bench.approved("number.put", {"to": 5})
    bench.crash(id, point)
    bench.run(id)
    for open_one in bench.tally.list(State.APPROVED):
        bench.run(open_one.id)
    assert bench.run(id).state is State.ROLLED_BACK
    assert World.done == [6, 0]


def test_what_somebody_else_has_changed_since_is_not_undone(bench: Bench) -> None:
    id = bench.approved("number.put", {"to": 5})
    bench.crash(id, "after_rollback_intent")
    World.value = 100
    found = bench.run(id)
    assert found.state is State.ROLLBACK_FAILED
    assert "not in the state that our effect left" in found.why
    assert World.value == 100


def test_what_was_put_back_by_hand_meanwhile_is_not_put_back_twice(bench: Bench) -> None:
    id = bench.approved("number.put", {"to": 5})
    bench.crash(id, "after_rollback_intent")
    World.value = 0
    assert bench.run(id).state is State.ROLLED_BACK
    assert World.done == [6]


def test_a_compensation_that_lands_wrong_calls_a_person_and_is_not_compensated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reset, "execute", Put.execute)
    monkeypatch.setattr(Reset, "rollback", Put.rollback)
    id = bench.approved("number.put", {"to": 5})
    assert bench.run(id).state is State.ROLLBACK_FAILED
    assert bench.state(child(bench, id)) is State.UNKNOWN
    assert World.done == [6, 1]


def test_parameters_that_cannot_be_computed_fail_the_rollback_and_call_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    World.value, World.slip, World.done = 0, 1, []

    def broken(params: Any, before: Any, result: Any) -> dict[str, Any]:
        raise KeyError("booking")

    monkeypatch.setattr(Put, "rollback", Compensate("number.reset", broken))
    bench = Bench(Put, Reset)
    id = bench.approved("number.put", {"to": 5})
    found = bench.run(id)
    assert found.state is State.ROLLBACK_FAILED
    assert "KeyError" in found.why
    assert World.done == [6]


def test_a_compensation_needs_no_second_approval_but_its_plan_was_shown(bench: Bench) -> None:
    found = bench.propose("number.put", {"to": 5})
    assert found.rollback == {"kind": "compensate", "action": "number.reset", "version": 1}
    bench.tally.approve(found.id, by="approver")
    bench.run(found.id)
    assert bench.tally.get(child(bench, found.id)).approvals == ()


def test_a_type_whose_compensation_is_not_known_cannot_be_proposed() -> None:
    World.value, World.slip, World.done = 0, 1, []
    bench = Bench(Put)
    with pytest.raises(UnknownAction, match=r"number\.reset"):
        bench.propose("number.put", {"to": 5})
    assert bench.tally.list() == []
