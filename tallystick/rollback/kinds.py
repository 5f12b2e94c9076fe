"""The four ways in which a failed action can be undone; each action type declares one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tallystick.core.canonical import Json


@dataclass(frozen=True, slots=True)
class InBand:
    """The worker that acted undoes at once, by calling a method of the action type.

    `undo` is the method or its name; it is called as `undo(self, params, before, result, context)`
    with the rollback's own `context.idempotency_key`. It must be safe to run over the state that
    the failed effect left, and is followed by a look: is the world as before?
    """

    undo: Callable[..., Any] | str


@dataclass(frozen=True, slots=True)
class Compensate:
    """A second action undoes the first: enqueued, leased and verified like any other.

    `action` names the compensating type; `params(params, before, result)` returns its parameters
    as a mapping. The plan is approved together with the action, so it needs no second approval
    (sagas: Garcia-Molina and Salem, 1987).
    """

    action: str
    params: Callable[[Any, Any, Any], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class OutOfBand:
    """A person undoes it by `runbook` (a path or URL); a failed verification calls them at once."""

    runbook: str


@dataclass(frozen=True, slots=True)
class Irreversible:
    """It cannot be undone. `reason` says why; `challenge(params)` is the text that each approver
    must type back, so that a yes cannot be given without reading what it does.
    """

    reason: str
    challenge: Callable[[Any], str]


Rollback: TypeAlias = InBand | Compensate | OutOfBand | Irreversible

CHOICES = (
    "Declare `rollback =` one of: InBand(undo_method); Compensate(action, params_function); "
    "OutOfBand(runbook); Irreversible(reason, challenge=function)."
)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What an approver sees of the rollback, and what the digest covers."""

    kind: str
    detail: Mapping[str, Json]

    def as_json(self) -> dict[str, Json]:
        return {"kind": self.kind, **self.detail}


def plan(rollback: Rollback, *, compensation_version: int | None = None) -> RollbackPlan:
    """The declared rollback as data; a compensation names the version that would run."""
    match rollback:
        case InBand(undo):
            name = undo if isinstance(undo, str) else undo.__name__
            return RollbackPlan("in_band", {"undo": name})
        case Compensate(action):
            return RollbackPlan("compensate", {"action": action, "version": compensation_version})
        case OutOfBand(runbook):
            return RollbackPlan("out_of_band", {"runbook": runbook})
        case Irreversible(reason):
            return RollbackPlan("irreversible", {"reason": reason})
