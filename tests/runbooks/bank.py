"""The action types of the scene: a transfer that can go wrong in every way, and a notice."""

from decimal import Decimal
from typing import Any, ClassVar

from pydantic import BaseModel

from tallystick import Action, Context, InBand, Irreversible, NotApplied, Verdict


class World:
    """The bank, in this process."""

    balance: ClassVar[dict[str, Decimal]]
    lands_wrong = refuses = stuck = False

    @classmethod
    def reset(cls) -> None:
        cls.balance = {"alice": Decimal("500.00"), "bob": Decimal("80.00")}
        cls.lands_wrong = cls.refuses = cls.stuck = False


class Transfer(Action):
    """Moves money from one account to another."""

    name = "bank.transfer"
    rollback = InBand("give_back")

    class Params(BaseModel):
        source: str
        target: str
        amount: Decimal

    def observe(self, params: Any) -> Any:
        return {name: str(World.balance[name]) for name in (params.source, params.target)}

    def execute(self, params: Any, context: Context) -> Any:
        if World.refuses:
            raise NotApplied("the account is closed for the day")
        World.balance[params.source] -= params.amount
        World.balance[params.target] += params.amount * (2 if World.lands_wrong else 1)
        return {"reference": "T-4711"}

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        moved = {params.source: -params.amount, params.target: params.amount}
        expected = {name: str(Decimal(before[name]) + moved[name]) for name in before}
        return Verdict.equal(expected=expected, observed=now)

    def give_back(self, params: Any, before: Any, result: Any, context: Context) -> None:
        if World.stuck:
            raise ConnectionError("the bank does not answer")
        for name in (params.source, params.target):
            World.balance[name] = Decimal(before[name])


class Notice(Action):
    """Posts a notice where nobody can read it back."""

    name = "notice.post"
    protection = "blind"
    rollback = Irreversible("readers have seen it", challenge=lambda params: params.text)

    class Params(BaseModel):
        text: str

    def execute(self, params: Any, context: Context) -> None: ...
