"""What a team writes: an action type, which reads, acts, re-reads and knows how to undo."""

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, create_model

from tallystick.approvals import Policy
from tallystick.core.canonical import Json
from tallystick.core.errors import InvalidActionType
from tallystick.rollback import Rollback
from tallystick.verifiers import Verdict


class Protection(StrEnum):
    """What the target guarantees, and so what recovery may do (docs: concepts/recovery)."""

    KEYED = "keyed"
    """De-duplicates on our idempotency key: sending again is safe."""
    VERSIONED = "versioned"
    """Compares-and-sets on the version that was approved: sending again is safe."""
    FENCED = "fenced"
    """Refuses fencing tokens older than the highest it has seen."""
    READABLE = "readable"
    """The effect can be read, nothing more: never sent twice."""
    BLIND = "blind"
    """Nothing can be known after a lost reply: never sent twice."""


@dataclass(frozen=True, slots=True)
class Context:
    """What `execute` gets to hand on to the target."""

    action_id: str
    idempotency_key: str
    """The same at every attempt of this action; a rollback has its own."""
    fencing_token: int
    """Grows with every claim of the action."""
    deadline: float
    """When the work-horse will be killed, on the clock of `time.monotonic()`."""
    attempt: int = 1
    expected_version: Json = None
    """For a versioned type: the version that was approved, to be sent as the condition."""

    def remaining(self) -> float:
        """Seconds left until the deadline: the time-out to give to a client."""
        return max(0.0, self.deadline - time.monotonic())


class Action:
    """One type of action. Subclass it, set the attributes, write the methods.

    `execute`, `verify` and `rollback` are required. `observe` re-reads the target into JSON-able
    state; it is called before and after the effect, any number of times, and changes nothing.
    Methods raise `NotApplied` for a definite refusal by the target; any other exception from
    `execute` means that nobody knows, and the target is looked at.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    protection: ClassVar[str | None] = None
    """One of keyed, versioned, fenced, readable, blind. Default: readable with `observe`, blind
    without."""
    rollback: ClassVar[Rollback]
    policy: ClassVar[Policy] = Policy()
    max_attempts: ClassVar[int] = 3
    """How often an effect may be sent where the protection allows sending again."""
    effect_deadline: ClassVar[float | None] = None
    """Seconds that `execute` may take; the setting unless given. It may only be shorter."""
    verify_deadline: ClassVar[float | None] = None
    """Seconds that verification polls; the setting unless given. 0 looks once."""

    Params: ClassVar[type[BaseModel]]

    def observe(self, params: Any) -> Any:
        """Re-read the target: its JSON-able state, as an approver should see it."""
        return None

    def precondition(self, params: Any, approved: Any, now: Any) -> Verdict:
        """Is the world still as it was approved? By default: the observed state is equal."""
        return Verdict.equal(expected=approved, observed=now)

    def execute(self, params: Any, context: Context) -> Any:
        """Do it, once, within `context.remaining()` seconds. Returns a JSON-able reply."""
        raise NotImplementedError

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        """Did it happen as approved? `before` and `now` are observed states; `result` is the reply
        of `execute`, or None where the reply was lost. A blind type has only its reply to judge;
        unless it does, its outcome is unknown."""
        return Verdict.inconclusive(reason="this target cannot be re-read", observed=result)

    def restored(self, params: Any, before: Any, now: Any) -> Verdict:
        """Is the world as before, after a rollback? By default: the observed state is equal; for a
        versioned type, equal but for the version, which grows with the undo."""
        if protection_of(self) is Protection.BLIND:
            return Verdict.inconclusive(reason="this target cannot be re-read")
        if protection_of(self) is Protection.VERSIONED:
            before, now = _without_version(before), _without_version(now)
        return Verdict.equal(expected=before, observed=now)

    def version_of(self, state: Any) -> Any:
        """For a versioned type: the version within an observed state. Default: its `version`."""
        return state.get("version") if isinstance(state, Mapping) else None

    def raise_fence(self, params: Any, token: int) -> None:
        """For a fenced type: make the target refuse tokens below `token`, or raise `StaleFence`
        if it has already seen a higher one."""
        raise NotImplementedError


def protection_of(spec: Action) -> Protection:
    """The declared protection, or the default: readable if `observe` is written, else blind."""
    if spec.protection is not None:
        return Protection(spec.protection)
    return Protection.READABLE if overrides(spec, "observe") else Protection.BLIND


def overrides(spec: Action, method: str) -> bool:
    """Whether the type wrote this method itself."""
    return getattr(type(spec), method) is not getattr(Action, method)


def _without_version(state: Any) -> Any:
    if not isinstance(state, Mapping):
        return state
    return {name: value for name, value in state.items() if name != "version"}


def action(
    name: str,
    *,
    rollback: Rollback,
    verify: Callable[..., Verdict],
    observe: Callable[[Any], Any] | None = None,
    precondition: Callable[[Any, Any, Any], Verdict] | None = None,
    version: int = 1,
    protection: str | None = None,
    policy: Policy | None = None,
) -> Callable[[Callable[..., Any]], type[Action]]:
    """The short form: make one function an action type.

    The function's keyword parameters become `Params`; one named `context` receives the `Context`.
    `observe(params)`, `precondition(params, approved, now)` and
    `verify(params, before, now, result)` are plain functions. The result is the `Action` subclass.
    """

    def make(function: Callable[..., Any]) -> type[Action]:
        takes = inspect.signature(function, eval_str=True).parameters
        for field, given in takes.items():
            if given.kind not in {given.POSITIONAL_OR_KEYWORD, given.KEYWORD_ONLY}:
                raise InvalidActionType(
                    name=name,
                    problem=f"its parameter {field!r} has no name to be given by",
                    remedy="Use named parameters only: no *args, **kwargs or positional-only ones.",
                )
        fields: dict[str, Any] = {
            field: (
                Any if given.annotation is given.empty else given.annotation,
                ... if given.default is given.empty else given.default,
            )
            for field, given in takes.items()
            if field != "context"
        }
        model = create_model("Params", __config__=ConfigDict(extra="forbid"), **fields)

        def execute(_: Action, params: BaseModel, context: Context) -> Any:
            values = {field: getattr(params, field) for field in fields}
            if "context" in takes:
                values["context"] = context
            return function(**values)

        body: dict[str, Any] = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "name": name,
            "version": version,
            "rollback": rollback,
            "protection": protection,
            "Params": model,
            "execute": execute,
            "verify": staticmethod(verify),
        }
        if policy is not None:
            body["policy"] = policy
        if observe is not None:
            body["observe"] = staticmethod(observe)
        if precondition is not None:
            body["precondition"] = staticmethod(precondition)
        return cast(type[Action], type(function.__name__, (Action,), body))

    return make
