"""What a team writes to have its transfers approved, done once, looked at and, if wrong, undone.

The worker finds these types through `TALLYSTICK_ACTIONS=actions`.
"""

from decimal import Decimal
from typing import Annotated, Any

import bank
from pydantic import BaseModel, Field

from tallystick import Action, Compensate, Context, NotApplied, OutOfBand, Policy, Verdict
from tallystick.verifiers.sql import SqlRow

Amount = Annotated[Decimal, Field(gt=0, max_digits=12, decimal_places=2)]


class Transfer(Action):
    """Move money between two accounts.

    The bank takes the versions that were approved as a condition, so an order that is sent again
    after a crash is booked once. That is what `versioned` claims; never claim what your target
    does not do.
    """

    name = "bank.transfer"
    protection = "versioned"
    policy = Policy(quorum=1)  # who proposed it may not approve it
    rollback = Compensate(
        "bank.reverse", lambda params, before, result: {"booking": result["booking"]}
    )

    class Params(BaseModel):
        source: str
        target: str
        amount: Amount

    def observe(self, params: Params) -> Any:
        """Both balances and versions, read in one statement so that they belong together."""
        row = SqlRow(
            f"sqlite:///{bank.path()}",
            "SELECT s.balance AS source, t.balance AS target,"
            " s.version || '.' || t.version AS version"
            " FROM accounts s, accounts t WHERE s.owner = :source AND t.owner = :target",
        ).read(source=params.source, target=params.target)
        if row is None:  # nothing can be approved about an account that does not exist
            raise LookupError(f"{params.source} or {params.target} has no account")
        return row

    def execute(self, params: Params, context: Context) -> Any:
        """One booking, on the versions that were approved."""
        try:
            booking = bank.transfer(
                params.source,
                params.target,
                params.amount,
                version=str(context.expected_version),
                reference=context.idempotency_key,
            )
        except bank.Refused as refusal:  # a definite no; anything else means that nobody knows
            raise NotApplied(str(refusal)) from refusal
        return {"booking": booking}

    def verify(self, params: Params, before: Any, now: Any, result: Any) -> Verdict:
        """The balances moved by the amount, and by nothing else."""
        return Verdict.equal(
            expected={
                "source": Decimal(before["source"]) - params.amount,
                "target": Decimal(before["target"]) + params.amount,
            },
            observed={"source": now["source"], "target": now["target"]},
        )


class Reverse(Action):
    """Book a transfer back. It is approved together with the transfer, and runs by itself.

    The bank reverses a booking once per reference, which is what `keyed` claims.
    """

    name = "bank.reverse"
    protection = "keyed"
    rollback = OutOfBand("call the bank's back office, with the number of the booking")

    class Params(BaseModel):
        booking: int

    def observe(self, params: Params) -> Any:
        row = SqlRow(
            f"sqlite:///{bank.path()}",
            "SELECT b.source, b.debit, b.target, b.credit,"
            " EXISTS (SELECT 1 FROM bookings r WHERE r.reverses = b.number) AS reversed"
            " FROM bookings b WHERE b.number = :booking",
        ).read(booking=params.booking)
        if row is None:
            raise LookupError(f"there is no booking {params.booking}")
        return row

    def execute(self, params: Params, context: Context) -> Any:
        try:
            return {"booking": bank.reverse(params.booking, reference=context.idempotency_key)}
        except bank.Refused as refusal:
            raise NotApplied(str(refusal)) from refusal

    def verify(self, params: Params, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected={**before, "reversed": 1}, observed=now)
