"""An action that kills its workers: the code of its own type may be what does it.

Whatever part of it that is, it cannot be called again. So this is decided before any of it is, even
before the claim, and a person looks.
"""

import contextlib
from typing import Any

from tallystick.core.errors import Conflict, LeaseLost, UnknownId
from tallystick.jobs.action import Protection
from tallystick.jobs.decision import Situation, decide
from tallystick.jobs.judging import stage_of
from tallystick.jobs.record import Record, Tampered
from tallystick.jobs.states import OPEN, State
from tallystick.jobs.store import Store

MAX_DEATHS = 5
"""So many workers in a row may die over an action without leaving any other trace."""


class KillsWorkers(Exception):
    """More have died over this action than chance explains."""


def note_death(store: Store, id: str, *, worker: str, how: str) -> None:
    """Write down that a worker died over an action that it had not claimed yet, since nothing else
    would show it. Raises `StoreError` if the store fails."""
    with contextlib.suppress(UnknownId, Tampered, Conflict, LeaseLost):
        record = store.load(id)
        if record.state in OPEN and not record.leased:
            evidence = {"event": "died", "why": how}
            store.move(record, record.state, who=worker, worker=worker, evidence=evidence)


def check_deaths(record: Record) -> None:
    """Raise `KillsWorkers` if nothing of its type may be called any more."""
    if record.deaths >= MAX_DEATHS:
        raise KillsWorkers


def give_up(store: Store, record: Record, *, worker: str) -> State:
    """Bring it to rest unseen, unless somebody holds it or was faster: nobody looks at its target,
    and nothing is sent. The state that it is left in."""
    if record.leased:
        return record.state
    protection = Protection(record.content.protection)
    decided = decide(Situation(stage_of(record.state), protection, attempts_left=False))
    undoing = record.state is State.ROLLING_BACK
    to = State.ROLLBACK_FAILED if undoing else State.UNKNOWN
    sent = "it may have happened" if record.attempts else "nothing was sent"
    seen: dict[str, Any] = {
        "event": "rollback_failed" if undoing else "halted",
        "why": f"{record.deaths} workers died over it; {sent}",
        "rule": decided.rule,
    }
    if runbook := record.content.rollback.get("runbook"):
        seen["runbook"] = runbook
    try:
        store.move(record, to, who=worker, worker=worker, evidence=seen, lease="drop", due_ms=-1)
    except (Conflict, LeaseLost):
        return store.load(record.id).state
    return to
