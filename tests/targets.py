"""A bank to act on: it keeps its own ledger of effects, and can be told to misbehave.

Each protection has its variant of the same deposit. What the bank did is read from `bank.ledger`,
never from what Tallystick says of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, auto
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from tallystick import (
    Action,
    Compensate,
    Context,
    InBand,
    Irreversible,
    NotApplied,
    OutOfBand,
    Policy,
    Protection,
    StaleFence,
    Verdict,
)

DEPOSIT, RESTORE = "bank.deposit", "bank.restore"
RUNBOOK = "docs/runbooks/bank.md"


class Trouble(Enum):
    """What goes wrong at the next call."""

    LANDS_WRONG = auto()
    REFUSES = auto()
    """A definite "not applied"."""
    BREAKS_BEFORE = auto()
    """The link breaks before the bank has the order."""
    BREAKS_AFTER = auto()
    """The bank did it, and the answer is lost."""
    DOES_NOTHING = auto()
    """It says yes and does nothing."""


class LinkDown(OSError):
    """The bank does not answer."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that the bank did."""

    kind: str
    account: str
    key: str
    token: int


@dataclass
class Bank:
    """Accounts in memory. `protection` is what it guarantees; `troubles` are used up in order."""

    protection: Protection = Protection.READABLE
    balances: dict[str, Decimal] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    answers: dict[str, dict[str, str]] = field(default_factory=dict)
    """By idempotency key, if it is a keyed bank."""
    ledger: list[Effect] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """The keys of all orders that reached the bank, applied or not."""
    troubles: list[Trouble] = field(default_factory=list)
    unreadable: bool = False
    fence_broken: bool = False

    def effects(self, kind: str = DEPOSIT, *, key: str | None = None) -> int:
        """How often it was done."""
        return sum(done.kind == kind and key in {None, done.key} for done in self.ledger)

    def balance(self, account: str = "alice") -> Decimal:
        return self.balances.get(account, Decimal(100))

    def read(self, account: str) -> dict[str, Any]:
        if self.unreadable:
            raise LinkDown("the bank cannot be read")
        state: dict[str, Any] = {"balance": self.balance(account)}
        if self.protection is Protection.VERSIONED:
            state["version"] = self.versions.get(account, 1)
        return state

    def raise_fence(self, account: str, token: int) -> None:
        if self.fence_broken:
            raise LinkDown("the bank cannot be fenced")
        if token < self.fences.get(account, 0):
            raise StaleFence(token)
        self.fences[account] = token

    def meddle(self, account: str = "alice", amount: int = 7) -> None:
        """Somebody else moves money, beside all of this."""
        self._set(account, self.balance(account) + amount)

    def deposit(self, account: str, amount: Decimal, context: Context) -> dict[str, str]:
        return self._order(DEPOSIT, account, self.balance(account) + amount, context)

    def restore(self, account: str, balance: Decimal, context: Context) -> dict[str, str]:
        return self._order(RESTORE, account, balance, context)

    def _order(self, kind: str, account: str, balance: Decimal, context: Context) -> dict[str, str]:
        trouble = self.troubles.pop(0) if self.troubles else None
        key = context.idempotency_key
        if trouble is Trouble.BREAKS_BEFORE:
            raise LinkDown("reset by peer")
        self.calls.append(key)
        if trouble is Trouble.REFUSES:
            raise NotApplied("the account is closed")
        if self.protection is Protection.KEYED and key in self.answers:
            return self.answers[key]
        self._guard(account, context)
        if trouble is Trouble.DOES_NOTHING:
            return {"balance": str(self.balance(account))}
        self._set(account, balance + (1 if trouble is Trouble.LANDS_WRONG else 0))
        self.ledger.append(Effect(kind, account, key, context.fencing_token))
        self.answers[key] = {"balance": str(self.balance(account))}
        if trouble is Trouble.BREAKS_AFTER:
            raise LinkDown("reset by peer")
        return self.answers[key]

    def _guard(self, account: str, context: Context) -> None:
        if self.protection is Protection.FENCED:
            self.raise_fence(account, context.fencing_token)
        version = self.versions.get(account, 1)
        if self.protection is Protection.VERSIONED and context.expected_version != version:
            raise NotApplied(f"it is version {version}, not {context.expected_version}")

    def _set(self, account: str, balance: Decimal) -> None:
        self.balances[account] = balance
        self.versions[account] = self.versions.get(account, 1) + 1


class Order(BaseModel):
    account: str = "alice"
    amount: Decimal


class Level(BaseModel):
    account: str
    balance: Decimal


class BankAction(Action):
    """What all of the bank's types share; `bank` is set by the functions below."""

    bank: ClassVar[Bank]


class Readable(BankAction):
    """A deposit whose effect shows."""

    name = DEPOSIT
    Params = Order
    rollback = InBand("undo")

    def observe(self, params: Order) -> dict[str, Any]:
        return self.bank.read(params.account)

    def execute(self, params: Order, context: Context) -> dict[str, str]:
        return self.bank.deposit(params.account, params.amount, context)

    def verify(self, params: Order, before: Any, now: Any, result: Any) -> Verdict:
        expected = Decimal(before["balance"]) + params.amount
        return Verdict.equal(expected=expected, observed=now["balance"])

    def undo(self, params: Order, before: Any, result: Any, context: Context) -> dict[str, str]:
        return self.bank.restore(params.account, Decimal(before["balance"]), context)

    def raise_fence(self, params: Order, token: int) -> None:
        self.bank.raise_fence(params.account, token)


class Blind(BankAction):
    """A deposit whose effect never shows; only the bank's answer can be judged."""

    name = DEPOSIT
    Params = Order
    rollback = InBand("undo")

    def execute(self, params: Order, context: Context) -> dict[str, str]:
        return self.bank.deposit(params.account, params.amount, context)

    def verify(self, params: Order, before: Any, now: Any, result: Any) -> Verdict:
        if result is None:
            return Verdict.inconclusive(reason="no answer")
        return Verdict.equal(expected=100 + params.amount, observed=Decimal(result["balance"]))

    def undo(self, params: Order, before: Any, result: Any, context: Context) -> dict[str, str]:
        return self.bank.restore(params.account, Decimal(100), context)


class Restore(BankAction):
    """The compensation of a deposit: set the account to what it was."""

    name = RESTORE
    Params = Level
    rollback = OutOfBand(RUNBOOK)

    def observe(self, params: Level) -> dict[str, Any]:
        return self.bank.read(params.account)

    def execute(self, params: Level, context: Context) -> dict[str, str]:
        return self.bank.restore(params.account, params.balance, context)

    def verify(self, params: Level, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected=params.balance, observed=now["balance"])

    def raise_fence(self, params: Level, token: int) -> None:
        self.bank.raise_fence(params.account, token)


def as_before(params: Order, before: Any, result: Any) -> dict[str, Any]:
    """The parameters of the compensation."""
    return {"account": params.account, "balance": before["balance"]}


COMPENSATED = Compensate(RESTORE, as_before)
BY_HAND = OutOfBand(RUNBOOK)
FOR_EVER = Irreversible(
    "a deposit cannot be called back", challenge=lambda order: f"{order.account} {order.amount}"
)
TWO = Policy(quorum=2)


def made(base: type[BankAction], bank: Bank, **attributes: Any) -> type[Action]:
    """A subclass of one of the types above, at this bank, under its protection."""
    body = {"bank": bank, "protection": bank.protection.value, **attributes}
    return cast("type[Action]", type(base.__name__, (base,), body))


def deposit(bank: Bank, **attributes: Any) -> type[Action]:
    """The deposit at this bank."""
    base = Blind if bank.protection is Protection.BLIND else Readable
    return made(base, bank, **attributes)


def restore(bank: Bank, **attributes: Any) -> type[Action]:
    """The compensation at this bank."""
    return made(Restore, bank, **attributes)


def with_method(base: type[Action], name: str, method: Callable[..., Any]) -> type[Action]:
    """The same type with one method replaced: what another team might have written."""
    return cast("type[Action]", type(base.__name__, (base,), {name: method}))
