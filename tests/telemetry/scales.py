"""Action types for the tests of what is told of them, at a target that is one number."""

from typing import Any, ClassVar

from opentelemetry import trace
from pydantic import BaseModel

from tallystick import Action, Compensate, Context, InBand, NotApplied, OutOfBand, Verdict
from tallystick.rollback import Rollback

SECRET = "hunter2-Planted"


class World:
    """The number, and how the next effect goes."""

    value = 0
    slip = 0
    raises: ClassVar[Exception | None] = None
    seen_in: ClassVar[list[str]] = []
    """The trace ids of the spans in which the effects ran."""

    @classmethod
    def reset(cls) -> None:
        cls.value = cls.slip = 0
        cls.raises = None
        cls.seen_in = []


class Put(Action):
    """Put a number; a slip lands it beside the mark."""

    name = "scale.put"
    rollback: ClassVar[Rollback] = InBand("undo")

    class Params(BaseModel):
        """The number, and what must not be logged."""

        to: int
        password: str = SECRET

    def observe(self, params: Any) -> Any:
        return World.value

    def execute(self, params: Any, context: Context) -> Any:
        World.seen_in.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")
        if World.raises:
            raise World.raises
        World.value = params.to + World.slip
        return {"receipt": SECRET}

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected=params.to, observed=now)

    def undo(self, params: Any, before: Any, result: Any, context: Context) -> None:
        World.value = before


class PutOnce(Put):
    """Put a number, if it may be judged a second time."""

    name = "scale.put-once"

    def precondition(self, params: Any, approved: Any, now: Any) -> Verdict:
        """Nothing was put yet."""
        if World.seen_in:
            raise ValueError(f"not twice with {SECRET}")
        return Verdict.holds()


class PutBack(Put):
    """Put a number; undone by another action."""

    name = "scale.put-back"
    rollback: ClassVar[Rollback] = Compensate(
        "scale.reset", lambda params, before, _: {"to": before}
    )


class Reset(Put):
    """Put the old number back."""

    name = "scale.reset"
    rollback: ClassVar[Rollback] = OutOfBand("docs/runbooks/scale.md")

    def execute(self, params: Any, context: Context) -> Any:
        World.value = params.to


TYPES = (Put, PutOnce, PutBack, Reset)

REFUSAL = NotApplied(f"no, not with {SECRET}")
BREAKDOWN = RuntimeError(f"login with password {SECRET} failed at https://app:{SECRET}@bank")
