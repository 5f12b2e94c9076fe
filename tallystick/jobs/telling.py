"""One log line, and one event of the current span, for each move: told here and nowhere else.

It is told after the move was stored, by the process that stored it, and not of one that was
refused. A process that dies in between tells nothing: the journal is whole, the log need not be.
Neither parameters nor results nor words of people or targets are in it.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from tallystick.jobs import consequences
from tallystick.jobs.record import Line, Record
from tallystick.telemetry import traces

log = logging.getLogger("tallystick.moves")


def stored(line: Line, *, id: str, record: Record | None = None, action: str = "corrupt") -> None:
    """Tell of a line that the store has just confirmed: of a change of state at level INFO, or
    WARNING if it calls a person; of a note (a claim, a vote that others must join) at DEBUG.

    `record` is the action as it was before, `action` the type where there is no record.
    """
    action = record.content.action if record else action
    changed = line.from_state != line.to_state
    if changed:
        traces.happened("moved", action_id=id, action_type=action, state=line.to_state)
    calls = consequences.of(line, id=id, action=action).attention
    level = logging.WARNING if calls else logging.INFO if changed else logging.DEBUG
    if log.isEnabledFor(level):
        fields = _fields(line, id, action, record) | ({"next": _next(id)} if calls else {})
        what = f"{line.from_state or 'new'} -> {line.to_state}" if changed else line.event
        log.log(level, "action %s: %s", id, what, extra=fields)


@contextlib.contextmanager
def run(record: Record, worker: str) -> Iterator[None]:
    """The span of one worker's hold on an action, in the trace that its proposal began."""
    content = record.content
    with traces.span(
        "run",
        parent=record.trace,
        action_id=record.id,
        action_type=content.action,
        fencing_token=record.token,
        worker=worker,
    ):
        yield


def _fields(line: Line, id: str, action: str, record: Record | None) -> dict[str, Any]:
    attempts = record.attempts if record else 0
    trace = traces.trace_id(record.trace if record else str(line.evidence.get("trace", "")))
    fields = {
        "action_id": id,
        "action_type": action,
        "from_state": line.from_state or None,
        "state": line.to_state,
        "journal_event": line.event,
        "seq": line.seq,
        "attempt": attempts + (line.event == "intent"),
        "fencing_token": line.token,
        "worker": line.worker,
        "trace_id": trace or traces.trace_id(),
    }
    return {name: value for name, value in fields.items() if value != ""}


def _next(id: str) -> str:
    return f"tallystick show {id}"
