"""An action that kills its workers: one of its own methods may be what does it.

Whatever method that is, it cannot be asked again. So this is decided before any of them is called,
and a person looks.
"""

from tallystick.jobs.attempt import Attempt
from tallystick.jobs.decision import Situation, decide
from tallystick.jobs.judging import stage_of
from tallystick.jobs.record import Record
from tallystick.jobs.states import State

MAX_LOST_CLAIMS = 5
"""So many workers in a row may die holding an action without leaving any other trace."""


def kills_workers(record: Record) -> bool:
    """Whether more have died than chance explains; the last claim is our own."""
    return record.lost_claims > MAX_LOST_CLAIMS


def give_up(attempt: Attempt) -> None:
    """Bring it to rest unseen: nobody looks at its target, and nothing is sent."""
    record = attempt.record
    decided = decide(Situation(stage_of(record.state), attempt.protection, attempts_left=False))
    sent = "it may have happened" if record.attempts else "nothing was sent"
    why = f"{record.lost_claims - 1} workers died holding it; {sent}"
    undoing = record.state is State.ROLLING_BACK
    to = State.ROLLBACK_FAILED if undoing else State.UNKNOWN
    event = "rollback_failed" if undoing else "halted"
    attempt.move(to, event, lease="drop", why=why, rule=decided.rule)
