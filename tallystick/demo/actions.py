"""The demo's action types, one for each kind of target and of rollback. Made to be copied.

An action type says what the target guarantees (`protection`), reads it (`observe`), acts
(`execute`), judges what it reads then (`verify`), and declares how it is undone (`rollback`).
"""

import hashlib
from decimal import Decimal
from typing import Annotated, Any

import httpx
from pydantic import BaseModel, Field

from tallystick import (
    Action,
    Compensate,
    Context,
    InBand,
    Irreversible,
    NotApplied,
    OutOfBand,
    Verdict,
)
from tallystick.demo.accidents import accident_prone
from tallystick.demo.targets import Refused, here
from tallystick.verifiers.files import file_state
from tallystick.verifiers.http import HttpResource
from tallystick.verifiers.sql import SqlRow

Amount = Annotated[Decimal, Field(gt=0, max_digits=12, decimal_places=2)]


class Transfer(Action):
    """Move money between two accounts of the bank.

    The bank compares and sets: it takes the account versions that were approved as a condition,
    so an order that is sent twice is booked once. What it booked wrong, it reverses.
    """

    name = "bank.transfer"
    protection = "versioned"
    rollback = Compensate(
        "bank.reverse", lambda params, before, result: {"booking": result["booking"]}
    )

    class Params(BaseModel):
        """Who pays whom, and how much."""

        source: str
        target: str
        amount: Amount

    def observe(self, params: Params) -> Any:
        row = SqlRow(
            here().bank.url,
            "SELECT s.balance AS source, t.balance AS target,"
            " s.version || '.' || t.version AS version"
            " FROM accounts s, accounts t WHERE s.owner = :source AND t.owner = :target",
        ).read(source=params.source, target=params.target)
        if row is None:
            raise LookupError("one of the accounts does not exist")
        return row

    @accident_prone
    def execute(self, params: Params, context: Context) -> Any:
        try:
            booking = here().bank.transfer(
                params.source,
                params.target,
                params.amount,
                order=context.idempotency_key,
                version=str(context.expected_version),
            )
        except Refused as refusal:
            raise NotApplied(str(refusal)) from refusal
        return {"booking": booking}

    def verify(self, params: Params, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(
            expected={
                "source": Decimal(before["source"]) - params.amount,
                "target": Decimal(before["target"]) + params.amount,
            },
            observed={"source": now["source"], "target": now["target"]},
        )


class Reverse(Action):
    """Book a transfer back. The bank reverses a booking once for one key, however often asked."""

    name = "bank.reverse"
    protection = "keyed"
    rollback = OutOfBand("ask the bank's back office, with the number of the booking")

    class Params(BaseModel):
        """The number of the transfer's booking."""

        booking: int

    def observe(self, params: Params) -> Any:
        row = SqlRow(
            here().bank.url,
            "SELECT b.source, b.debit, b.target, b.credit,"
            " EXISTS (SELECT 1 FROM bookings r WHERE r.reverses = b.number) AS reversed"
            " FROM bookings b WHERE b.number = :booking",
        ).read(booking=params.booking)
        if row is None:
            raise LookupError(f"there is no booking {params.booking}")
        return row

    @accident_prone
    def execute(self, params: Params, context: Context) -> Any:
        try:
            return {"booking": here().bank.reverse(params.booking, order=context.idempotency_key)}
        except Refused as refusal:
            raise NotApplied(str(refusal)) from refusal

    def verify(self, params: Params, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected={**before, "reversed": 1}, observed=now)


class Pay(Action):
    """Pay an invoice at a service that books once per Idempotency-Key header."""

    name = "invoice.pay"
    protection = "keyed"
    rollback = OutOfBand("ask the payment service for a refund")

    class Params(BaseModel):
        """Which invoice, and how much of it."""

        invoice: str
        amount: Amount

    def observe(self, params: Params) -> Any:
        found = HttpResource(here().service_url, "/invoices/{number}").read(number=params.invoice)
        if found is None:
            raise LookupError(f"there is no invoice {params.invoice}")
        return found["body"]

    @accident_prone
    def execute(self, params: Params, context: Context) -> Any:
        response = httpx.post(
            f"{here().service_url}/payments",
            json={"invoice": params.invoice, "amount": str(params.amount)},
            headers={"Idempotency-Key": context.idempotency_key},
            timeout=context.remaining(),
        )
        if response.status_code in {400, 404, 422}:  # it refused, and did nothing
            raise NotApplied(f"{response.status_code}: {response.text}")
        return response.raise_for_status().json()

    def verify(self, params: Params, before: Any, now: Any, result: Any) -> Verdict:
        paid = Decimal(before["paid"]) + params.amount
        return Verdict.equal(expected={**before, "paid": paid}, observed=now)


class PayOnce(Pay):
    """The same at a service that ignores the header: its invoices can be read, and that is all."""

    name = "invoice.pay-once"
    protection = "readable"


class Publish(Action):
    """Replace a page of the website. The page that it replaced is put back if it lands wrong."""

    name = "site.publish"
    protection = "readable"
    rollback = InBand("put_back")

    class Params(BaseModel):
        """The page's file name, and what it shall say."""

        page: str = Field(pattern=r"^[a-z0-9-]+\.html$")
        text: str

    def observe(self, params: Params) -> Any:
        return file_state(here().site.page(params.page))

    @accident_prone
    def execute(self, params: Params, context: Context) -> Any:
        here().site.publish(params.page, params.text)

    def verify(self, params: Params, before: Any, now: Any, result: Any) -> Verdict:
        wanted = hashlib.sha256(params.text.encode()).hexdigest()
        return Verdict.equal(expected=wanted, observed=now and now.get("sha256"))

    def put_back(self, params: Params, before: Any, result: Any, context: Context) -> Any:
        here().site.restore(params.page, before and before["sha256"])


class SendMail(Action):
    """Send a mail. Nobody can look whether it arrived, or call it back."""

    name = "mail.send"
    protection = "blind"
    rollback = Irreversible(
        "a mail that has left cannot be called back", challenge=lambda params: params.to
    )

    class Params(BaseModel):
        """One mail."""

        to: str
        subject: str
        text: str

    @accident_prone
    def execute(self, params: Params, context: Context) -> Any:
        here().mailbox.deliver(params.to, params.subject, params.text)
        return {"accepted": True}

    def verify(self, params: Params, before: Any, now: Any, result: Any) -> Verdict:
        """The reply is all the evidence that there can be, and is judged as such."""
        if result == {"accepted": True}:
            return Verdict.holds(observed=result, reason="accepted for delivery")
        return Verdict.inconclusive(reason="there was no reply", observed=result)
