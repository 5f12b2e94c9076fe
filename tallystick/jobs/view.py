"""An action as its users see it: one frozen, typed value, the same in Python and in `--json`."""

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from tallystick.jobs.record import Line, Record, Stored
from tallystick.jobs.states import State


class Approval(BaseModel):
    """One person's recorded decision."""

    model_config = ConfigDict(frozen=True)

    who: str
    decision: str
    at: str
    answer: str | None
    key_id: str


class ActionRecord(BaseModel):
    """One action. Times are ISO 8601 in UTC, from the store's clock."""

    model_config = ConfigDict(frozen=True)

    id: str
    key: str
    action: str
    version: int
    params: dict[str, Any]
    reason: str
    state: State
    digest: str
    proposed_by: str
    approvals: tuple[Approval, ...]
    policy: dict[str, Any]
    challenge: str | None
    """What an approver must type back; None where nothing is asked."""
    observed: Any
    """The target's state as it was proposed and approved."""
    precondition: str
    protection: str
    attempts: int
    """Intents stored: how often the effect may have been sent."""
    fencing_token: int
    leased: bool
    """Whether a worker holds it now."""
    result: Any
    """What the target answered, None if nothing or not known."""
    verdict: dict[str, Any] | None
    """The last look's answer, with expected, observed and difference."""
    rollback: dict[str, Any]
    """The plan that was approved, and what became of it: `outcome`, `compensation`, `restored`."""
    why: str
    """Why it is where it is, if there is more to say than the state."""
    compensates: str | None
    created_at: str
    updated_at: str
    expires_at: str


class JournalEntry(BaseModel):
    """One line of an action's journal."""

    model_config = ConfigDict(frozen=True)

    seq: int
    at: str
    from_state: str
    to_state: str
    who: str
    worker: str
    token: int
    evidence: dict[str, Any]
    prev: str
    hash: str


def view(record: Record) -> ActionRecord:
    """The record, for its users."""
    content = record.content
    last_verdict = next(
        (line.evidence["verdict"] for line in reversed(record.lines) if "verdict" in line.evidence),
        None,
    )
    return ActionRecord(
        id=record.id,
        key=content.key,
        action=content.action,
        version=content.version,
        params=content.params,
        reason=content.reason,
        state=record.state,
        digest=record.digest,
        proposed_by=content.proposed_by,
        approvals=tuple(
            Approval(
                who=vote.who,
                decision=vote.decision,
                at=iso(vote.at),
                answer=vote.answer,
                key_id=vote.key_id,
            )
            for vote in record.votes
        ),
        policy=content.policy,
        challenge=content.challenge,
        observed=content.observed,
        precondition=content.precondition,
        protection=content.protection,
        attempts=record.attempts,
        fencing_token=record.token,
        leased=record.leased,
        result=record.fact("replied", "result"),
        verdict=last_verdict if isinstance(last_verdict, dict) else None,
        rollback=_rollback(record),
        why=_why(record),
        compensates=content.compensates,
        created_at=iso(record.lines[0].at),
        updated_at=iso(record.at),
        expires_at=iso(content.expires_at),
    )


def damaged(stored: Stored, problem: str, *, state: str) -> ActionRecord:
    """What can be shown of an action whose seals do not match, or that a newer version wrote:
    nothing of it is believed but, where that is known by other means, its state."""
    blank: dict[str, Any] = {"challenge": None, "observed": None, "result": None, "verdict": None}
    blank |= {"key": "", "action": "", "reason": "", "proposed_by": "", "precondition": ""}
    return ActionRecord(
        id=stored.id,
        **blank,
        version=0,
        params={},
        state=State(state) if state in set(State) else State.CORRUPT,
        digest=stored.fields.get("digest", ""),
        approvals=(),
        policy={},
        protection="",
        attempts=0,
        fencing_token=0,
        leased=False,
        rollback={},
        why=problem,
        compensates=None,
        created_at=iso(0),
        updated_at=iso(0),
        expires_at=iso(0),
    )


def entry(line: Line) -> JournalEntry:
    """A journal line, for its readers."""
    return JournalEntry(
        seq=line.seq,
        at=iso(line.at),
        from_state=line.from_state,
        to_state=line.to_state,
        who=line.who,
        worker=line.worker,
        token=line.token,
        evidence=dict(line.evidence),
        prev=line.prev,
        hash=line.hash,
    )


def iso(milliseconds: int) -> str:
    """ISO 8601 in UTC with milliseconds: 2026-11-29T16:30:00.123Z."""
    when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rollback(record: Record) -> dict[str, Any]:
    told: dict[str, Any] = dict(record.content.rollback)
    for line in record.lines:
        if child := line.evidence.get("compensation"):
            told["compensation"] = child
    if record.last("refuted") is not None:
        told["outcome"] = str(record.state)
    for event in ("restored", "rollback_failed"):
        if verdict := record.fact(event, "restored"):
            told["restored"] = verdict
    return told


def _why(record: Record) -> str:
    for line in reversed(record.lines):
        if line.to_state != line.from_state:
            return str(line.evidence.get("why") or line.evidence.get("evidence") or "")
    return ""
