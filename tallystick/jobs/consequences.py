"""What follows from a journal line: the counters it bumps, and whom it calls.

Pure, and applied by the store to every line, so that nothing moves uncounted and no failure is
silent, whoever moves it.
"""

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


@dataclass(frozen=True, slots=True)
class Consequences:
    """Counter fields to bump; the attention to raise (a field), lower (empty) or leave (None);
    and the alert to put into the outbox, if any."""

    bump: tuple[str, ...]
    attention: str | None = None
    alert: str | None = None


def of(line: Line, *, id: str, action: str) -> Consequences:
    """What this line brings about, for this action of this type."""
    reason = _reason(line)
    settled = "" if line.event in _SETTLES else None
    return Consequences(
        tuple(_counted(line, action)),
        counters.attention(action, reason) if reason else settled,
        _alert(line, id, action, reason) if reason else None,
    )


def _counted(line: Line, action: str) -> list[str]:
    fields = [counters.MOVES]
    to = line.to_state
    if line.from_state != to:
        fields.append(counters.transition(action, to))
        if to in _DECISIONS and line.from_state:
            fields.append(counters.decision(to))
        if to in {State.ROLLED_BACK, State.ROLLBACK_FAILED} and line.event != "resolved":
            fields.append(counters.rollback(action, to))
    for name, field in (
        ("precondition", counters.precondition),
        ("verdict", counters.verification),
    ):
        verdict = line.evidence.get(name)
        if isinstance(verdict, dict):
            fields.append(field(action, str(verdict.get("answer"))))
    if line.event == "late_evidence":
        fields.append(counters.FENCING_REJECTIONS)
    if line.event == "corrupt":
        fields.append(counters.security_event("corrupt_record"))
    return fields


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
