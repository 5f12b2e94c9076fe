"""A world in memory: it keeps its own ledger, and what is sent to it may come late or never.

What it did is read from its ledger, never from what Tallystick says of it. Each reading is a point
at which the worker that reads may be frozen or killed.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from tallystick import (
    Action,
    Compensate,
    Context,
    InBand,
    NotApplied,
    OutOfBand,
    Protection,
    StaleFence,
    Verdict,
)

OLD, CROOKED, STRANGE = "old", "crooked", "strange"
IN_BAND, COMPENSATED, BY_HAND, RESET = "set.in_band", "set.compensated", "set.by_hand", "reset"


class Fate(Enum):
    """What becomes of the next call."""

    ANSWERED = auto()
    ANSWER_LOST = auto()
    UNDER_WAY = auto()
    """No answer, and it arrives later or never."""
    REFUSED = auto()
    CROOKED = auto()
    """It is done, but wrong."""
    LIE = auto()
    """A yes, and nothing done."""


class Silence(OSError):
    """No answer came."""


@dataclass(frozen=True, slots=True)
class Call:
    """One order, on its way to the target."""

    what: str
    """`set`, or `undo` for whatever restores."""
    item: str
    value: str
    action: str
    key: str
    token: int
    version: Any


def _no_pause(point: str) -> None: ...


@dataclass
class Target:
    """Items with a value. `protection` is what it guarantees."""

    protection: Protection
    values: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    ledger: list[Call] = field(default_factory=list)
    under_way: list[Call] = field(default_factory=list)
    fate: Fate = Fate.ANSWERED
    """Of the next call; then all is well again."""
    readable: bool = True

    def done(self, what: str, action: str) -> int:
        """How often an action did this."""
        return sum((call.what, call.action) == (what, action) for call in self.ledger)

    def value(self, item: str) -> str:
        return self.values.get(item, OLD)

    def read(self, item: str) -> dict[str, Any]:
        self._pause("read")
        if not self.readable:
            raise Silence("it cannot be read")
        state: dict[str, Any] = {"value": self.value(item)}
        if self.protection is Protection.VERSIONED:
            state["version"] = self.versions.get(item, 1)
        return state

    def raise_fence(self, item: str, token: int) -> None:
        self._pause("raise fence")
        if token < self.fences.get(item, 0):
            raise StaleFence(token)
        self.fences[item] = token

    def send(self, call: Call) -> dict[str, str]:
        fate, self.fate = self.fate, Fate.ANSWERED
        if fate is Fate.REFUSED:
            raise NotApplied("not today")
        if fate is Fate.LIE:
            return {"value": call.value}
        if fate is Fate.UNDER_WAY:
            self.under_way.append(call)
            raise Silence("no answer in time")
        answer = self._arrive(call, CROOKED if fate is Fate.CROOKED else call.value)
        if fate is Fate.ANSWER_LOST:
            raise Silence("the answer is lost")
        return {"value": answer}

    def deliver(self, call: Call) -> None:
        """What was under way arrives; nobody waits for its answer."""
        self.under_way.remove(call)
        try:
            self._arrive(call, call.value)
        except (NotApplied, StaleFence):
            return

    def meddle(self, item: str) -> None:
        """Somebody else writes."""
        self._write(item, STRANGE)

    def _arrive(self, call: Call, value: str) -> str:
        if self.protection is Protection.KEYED and call.key in self.answers:
            return self.answers[call.key]
        if self.protection is Protection.FENCED:
            if call.token < self.fences.get(call.item, 0):
                raise StaleFence(call.token)
            self.fences[call.item] = call.token
        version = self.versions.get(call.item, 1)
        if self.protection is Protection.VERSIONED and call.version != version:
            raise NotApplied(f"it is version {version}, not {call.version}")
        self._write(call.item, value)
        self.ledger.append(call)
        self.answers[call.key] = value
        return value

    def _write(self, item: str, value: str) -> None:
        self.values[item] = value
        self.versions[item] = self.versions.get(item, 1) + 1

    @staticmethod
    def _pause(point: str) -> None:
        pause: Callable[[str], None] = getattr(threading.current_thread(), "gate", _no_pause)
        pause(point)


class Change(BaseModel):
    item: str
    value: str


class Set(Action):
    """Give an item a value."""

    target: ClassVar[Target]
    what: ClassVar[str] = "set"
    Params = Change
    rollback = OutOfBand("docs/runbooks/items.md")

    def observe(self, params: Change) -> dict[str, Any]:
        return self.target.read(params.item)

    def execute(self, params: Change, context: Context) -> dict[str, str]:
        return self.target.send(_call(self.what, params.item, params.value, context))

    def verify(self, params: Change, before: Any, now: Any, result: Any) -> Verdict:
        shown = result if self.target.protection is Protection.BLIND else now
        if shown is None:
            return Verdict.inconclusive(reason="nothing shows it")
        return Verdict.equal(expected=params.value, observed=shown["value"])

    def undo(self, params: Change, before: Any, result: Any, context: Context) -> dict[str, str]:
        return self.target.send(_call("undo", params.item, _before(before), context))

    def raise_fence(self, params: Change, token: int) -> None:
        self.target.raise_fence(params.item, token)


def _call(what: str, item: str, value: str, context: Context) -> Call:
    return Call(
        what,
        item,
        value,
        context.action_id,
        context.idempotency_key,
        context.fencing_token,
        context.expected_version,
    )


def _before(before: Any) -> str:
    return OLD if before is None else str(before["value"])


def _as_before(params: Change, before: Any, result: Any) -> dict[str, str]:
    return {"item": params.item, "value": _before(before)}


def types(target: Target) -> list[type[Action]]:
    """The action types at this target: one for each way of undoing, and what compensates."""
    made: dict[str, dict[str, Any]] = {
        IN_BAND: {"rollback": InBand("undo")},
        COMPENSATED: {"rollback": Compensate(RESET, _as_before)},
        BY_HAND: {},
        RESET: {"what": "undo"},
    }
    common = {"target": target, "protection": target.protection.value}
    return [
        cast("type[Action]", type("Set", (Set,), {"name": name, **common, **body}))
        for name, body in made.items()
    ]
