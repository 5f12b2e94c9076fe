"""What follows from a journal line: the counters it bumps, and whom it calls.

Pure, and applied by the store to every line, so that nothing moves uncounted and no failure is
silent, whoever moves it.
"""

import re
from dataclasses import dataclass

from tallystick.core import canonical
from tallystick.jobs.record import Line
from tallystick.jobs.states import HALTED, State
from tallystick.metrics import counters

_DECISIONS = {State.APPROVED, State.REJECTED, State.CANCELLED, State.EXPIRED}

_CALLS = {
    State.ROLLING_BACK: "verification_failed",
    State.ROLLBACK_FAILED: "rollback_failed",
    State.UNKNOWN: "outcome_unknown",
    State.FAILED: "not_applied",
    State.CORRUPT: "corrupt",
}
"""The states whose entry calls a person, and why."""

_SETTLES = {"resolved", "acknowledged"}

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
"""https://www.w3.org/TR/trace-context/#traceparent-header"""

_FAILURES = {*_CALLS, State.PRECONDITION_FAILED}
_PROOFS = {(counters.CANARY, State.COMMITTED), (counters.DRILL, State.ROLLED_BACK)}
"""The ends of the canary and of the drill that prove that the stages before them work."""


@dataclass(frozen=True, slots=True)
class Consequences:
    """Counter fields to bump; the attention to raise (a field), lower (empty) or leave (None);
    the alert to put into the outbox, if any; and the counter fields whose newest action is to be
    remembered, with what is remembered of it (JSON)."""

    bump: tuple[str, ...]
    attention: str | None = None
    alert: str | None = None
    mark: tuple[str, ...] = ()
    newest: str = ""


def of(line: Line, *, id: str, action: str, trace: str = "") -> Consequences:
    """What this line brings about, for this action of this type. `trace` is the W3C traceparent of
    its proposal, if it has one."""
    reason = _reason(line)
    settled = "" if line.event in _SETTLES else None
    counted = tuple(_counted(line, action))
    marked = tuple(name for name in counted if name != counters.MOVES and _telling(line, action))
    return Consequences(
        counted,
        counters.attention(action, reason) if reason else settled,
        _alert(line, id, action, reason) if reason else None,
        marked,
        _newest(id, trace) if marked else "",
    )


def _telling(line: Line, action: str) -> bool:
    """Whether somebody will ask which action was the last that this line's counters counted."""
    entered = line.from_state != line.to_state
    failed = line.to_state in _FAILURES and line.event not in _SETTLES
    proof = (action, line.to_state) in _PROOFS
    return (entered and (failed or proof)) or line.event in {"late_evidence", "corrupt"}


def _newest(id: str, trace: str) -> str:
    traced = _TRACEPARENT.fullmatch(trace)
    named = {"trace_id": traced[1]} if traced else {}
    return canonical.dumps({"action_id": id, **named}).decode()


def _counted(line: Line, action: str) -> list[str]:
    fields = [counters.MOVES]
    to = line.to_state
    if line.from_state != to:
        fields.append(counters.transition(action, to))
        if to in _DECISIONS and line.from_state and line.event != "withheld":
            fields.append(counters.decision(to))
        if to in {State.ROLLED_BACK, State.ROLLBACK_FAILED} and line.event != "resolved":
            fields.append(counters.rollback(action, to))
    if answer := _answer(line, "precondition"):
        fields.append(counters.precondition(action, answer))
    # What the target refused was not applied, so there is no effect that could be verified.
    if to != State.FAILED and (answer := _answer(line, "verdict")):
        fields.append(counters.verification(action, answer))
    if line.event == "late_evidence" and not line.evidence.get("withheld"):
        fields.append(counters.FENCING_REJECTIONS)
    if line.event == "corrupt":
        fields.append(counters.security_event("corrupt_record"))
    return fields


def _answer(line: Line, name: str) -> str:
    verdict = line.evidence.get(name)
    return str(verdict.get("answer")) if isinstance(verdict, dict) else ""


def _reason(line: Line) -> str:
    """Why this line calls a person, one of `counters.ATTENTION`; empty if it does not."""
    entered = line.from_state != line.to_state or line.event == "corrupt"
    late = line.event == "late_evidence" and line.to_state in HALTED
    if not (entered or late) or line.event in _SETTLES:
        return ""
    state = State(line.to_state)
    if state is State.UNKNOWN and line.evidence.get("refuted"):
        return "verification_failed"
    return _CALLS.get(state, "")


def _alert(line: Line, id: str, action: str, reason: str) -> str:
    return canonical.dumps(
        {
            "id": id,
            "action": action,
            "seq": line.seq,
            "state": line.to_state,
            "reason": reason,
            "event": line.event,
            "why": str(line.evidence.get("why", ""))[:500],
            "runbook": line.evidence.get("runbook"),
            "next": f"tallystick show {id}",
        }
    ).decode()
