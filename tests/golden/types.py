"""The action types of the golden files, over a world of one number."""

from datetime import timedelta
from typing import Any, ClassVar

from pydantic import BaseModel

from tallystick import Action, Context, InBand, NotApplied, Policy, Verdict


class World:
    """The target."""

    value = 0
    wrong = refuses = stuck = False
    effects: ClassVar[list[str]] = []

    @classmethod
    def reset(cls) -> None:
        cls.value, cls.wrong, cls.refuses, cls.stuck = 0, False, False, False
        cls.effects.clear()


class Set(Action):
    """Set the number."""

    name = "golden.set"
    policy = Policy(expires_after=timedelta(days=36500))  # so that time changes nothing
    rollback = InBand("undo")

    class Params(BaseModel):
        """The new number."""

        to: int

    def observe(self, params: Any) -> Any:
        return {"value": World.value}

    def execute(self, params: Any, context: Context) -> Any:
        if World.refuses:
            raise NotApplied("closed on Sundays")
        World.value = params.to + (1 if World.wrong else 0)
        World.effects.append(context.idempotency_key)
        return {"set": params.to}

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected={"value": params.to}, observed=now)

    def undo(self, params: Any, before: Any, result: Any, context: Context) -> None:
        if not World.stuck:
            World.value = before["value"]


class Brief(Set):
    """The same with an approval window that is over at once."""

    name = "golden.brief"
    policy = Policy(expires_after=timedelta(milliseconds=1))


TYPES = (Set, Brief)
