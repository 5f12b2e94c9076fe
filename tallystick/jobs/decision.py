"""Recovery and the way ahead, decided from evidence: one pure function over everything known.

The rules are tried in order and the first that fits decides (the numbers are those of the table in
docs/concepts/recovery.md). Models and tests hold the whole product of inputs to three promises:
nothing is sent over doubt, nothing is repeated at a target that cannot refuse a repetition, and
nothing is committed but on a reading that shows it.
"""

from dataclasses import dataclass
from enum import StrEnum

from tallystick.jobs.action import Protection


class Stage(StrEnum):
    """How far an action is, as the table needs it."""

    WAITING = "waiting"
    APPROVED = "approved"
    ACTING = "acting"
    """There is an intent to act, without an outcome (running, verifying)."""
    UNDOING = "undoing"
    """There is an intent to undo, without an outcome (rolling_back)."""
    HALTED = "halted"
    CLOSED = "closed"


class Lease(StrEnum):
    """Who holds the action."""

    MINE = "mine"
    OTHER = "other"
    """Held by a worker that may be alive."""
    FREE = "free"


class Reply(StrEnum):
    """What became of the call of this attempt."""

    NONE = "none"
    """There was none, or nobody knows."""
    OK = "ok"
    """Our own call returned."""
    REFUSED = "refused"
    """A definite "not applied"."""
    UNCLEAR = "unclear"
    """Time-out, reset, any other error: it may have been applied."""


class Seen(StrEnum):
    """What a look at the target shows. While undoing, `OURS` is the world as it was before."""

    OURS = "ours"
    ABSENT = "absent"
    """As if nothing had been sent: the state from before."""
    PARTIAL = "partial"
    FOREIGN = "foreign"
    """Neither what was approved nor what was before."""
    UNKNOWN = "unknown"


class Step(StrEnum):
    """What to do next."""

    NOTHING = "nothing"
    QUARANTINE = "quarantine"
    WAIT = "wait"
    """Somebody else holds it, or people decide: look again when that is over."""
    CLOSE_UNSTARTED = "close_unstarted"
    """Cancelled or expired before any effect."""
    STALE = "stale"
    """The world has moved on since the approval."""
    LOOK_AGAIN = "look_again"
    ACT = "act"
    """Store the intent, then send."""
    SETTLE = "settle"
    """Commit; while undoing: rolled back."""
    NOT_APPLIED = "not_applied"
    UNDO = "undo"
    RAISE_READ_ACT = "raise_read_act"
    RAISE_READ_CLOSE = "raise_read_close"
    RESEND_CONDITION = "resend_condition"
    RESEND_KEY = "resend_key"
    HALT = "halt"
    """It may have happened, or may still happen: a person must look."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that is known when a worker holds an action in its hands."""

    stage: Stage
    protection: Protection
    seen: Seen = Seen.UNKNOWN
    reply: Reply = Reply.NONE
    intact: bool = True
    """Bytes, digest, chain, signatures and policy match."""
    rewound: bool = False
    """The store's history is shorter than what was exported of it."""
    lease: Lease = Lease.MINE
    attempts_left: bool = True
    go: bool = True
    """Nobody asked to stop, and the approval is still valid."""
    only_sender: bool = True
    """No earlier attempt may have sent."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The step, and the number of the rule that chose it."""

    step: Step
    rule: int


def decide(at: Situation) -> Decided:
    """The first rule that fits. Total: every situation hits one."""
    if at.stage is Stage.CLOSED:
        return Decided(Step.NOTHING, 1)
    if not at.intact:
        return Decided(Step.QUARANTINE, 2)
    if at.stage is Stage.HALTED:
        return Decided(Step.NOTHING, 4)
    if at.rewound:
        return Decided(Step.HALT, 3)
    if at.lease is Lease.OTHER:
        return Decided(Step.WAIT, 5)
    if at.stage is Stage.WAITING:
        return Decided(Step.WAIT if at.go else Step.CLOSE_UNSTARTED, 6)
    if at.stage is Stage.APPROVED:
        return _before_the_intent(at)
    return _after_the_intent(at)


def _before_the_intent(at: Situation) -> Decided:
    if not at.go:
        return Decided(Step.CLOSE_UNSTARTED, 7)
    if at.seen is Seen.OURS:  # an effect without an intent: state was lost, or done by hand
        return Decided(Step.HALT, 8)
    if at.seen in {Seen.FOREIGN, Seen.PARTIAL}:
        return Decided(Step.STALE, 9)
    if not at.attempts_left:
        return Decided(Step.HALT, 10)
    if at.seen is Seen.UNKNOWN and at.protection is not Protection.BLIND:
        return Decided(Step.LOOK_AGAIN, 11)
    return Decided(Step.ACT, 12)


def _after_the_intent(at: Situation) -> Decided:
    again = at.attempts_left and at.go
    if at.seen is Seen.OURS:
        return Decided(Step.SETTLE, 13)
    if at.reply is Reply.REFUSED and at.only_sender and at.seen is not Seen.PARTIAL:
        return Decided(Step.NOT_APPLIED, 14)  # whatever else is there now is not ours
    if at.seen in {Seen.PARTIAL, Seen.FOREIGN}:
        # Undo only where our own call returned and the reading contradicts the approval. Without
        # that reply, a foreign state may be somebody else's work: nothing shows that it is ours.
        if at.stage is Stage.ACTING and at.reply is Reply.OK:
            return Decided(Step.UNDO, 15)
        return Decided(Step.HALT, 15)
    if at.protection is Protection.FENCED and at.seen is Seen.ABSENT:
        return Decided(Step.RAISE_READ_ACT if again else Step.RAISE_READ_CLOSE, 16)
    if at.protection is Protection.VERSIONED and at.seen is Seen.ABSENT and again:
        return Decided(Step.RESEND_CONDITION, 17)
    if at.protection is Protection.KEYED and again:
        return Decided(Step.RESEND_KEY, 18)
    # A blind target's reply is evidence only if its type judges it so (then it was seen as OURS):
    # nothing is committed on "the call returned" alone.
    return Decided(Step.HALT, 20)
