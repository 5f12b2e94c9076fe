"""What a script must find for a step to be taken: the claim, no stop, a token that is new. And
which steps the replicas must have on disk before anybody goes by them."""

from tallystick.jobs.action import Protection
from tallystick.jobs.record import Line, Record, Tip
from tallystick.jobs.states import AT_REST, State
from tallystick.jobs.upkeep import EVERYTHING
from tallystick.metrics import counters


def guard(tip: Tip) -> dict[str, str]:
    """The claim that a script compares: whoever made a later one has moved the token or owner."""
    return {"state": tip.state, "token": str(tip.token), "owner": tip.owner}


def gate(record: Record, line: Line) -> list[str] | None:
    """The scopes whose stop forbids this step: a new intent, or the claim that leads to one.

    What is in flight goes on by the decision table, and what undoes is never stopped.
    """
    first = line.event == "claimed" and record.state is State.APPROVED
    if record.content.compensates or not (first or line.event == "intent"):
        return None
    return [EVERYTHING, record.content.action]


def fence(record: Record, line: Line) -> str | None:
    """The shared fence, if this step draws a token from it."""
    fenced = record.content.protection == Protection.FENCED and line.event == "claimed"
    return counters.FENCE if fenced else None


def relied_on(record: Record | None, line: Line, lease: str) -> bool:
    """Whether somebody goes by this step, so that no failover may lose it: an intent, a state of
    rest, whatever a person did, and the answer of a target that cannot be looked at. Another
    answer, a claim and a worker's note can be made anew, or are covered by the step that follows;
    what is halted after a rewind is halted where it would run.
    """
    if line.event in {"claimed", "rewound"}:
        return False
    blind = record is not None and record.content.protection == Protection.BLIND
    answer = blind and line.event in {"replied", "undone"}
    return answer or lease == "hold" or line.to_state in AT_REST or not line.worker
