"""The states of an action and every arrow between them: the one table that moves are checked by."""

from enum import StrEnum


class State(StrEnum):
    """Where an action is. The value is what is stored, shown and used as a metric label."""

    WAITING_FOR_APPROVAL = "waiting_for_approval"
    APPROVED = "approved"
    RUNNING = "running"
    """The intent is stored: the effect may have happened from here on."""
    VERIFYING = "verifying"
    """The target has answered; the world has not been re-read yet."""
    COMMITTED = "committed"
    """A re-read of the target proved the effect."""
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    PRECONDITION_FAILED = "precondition_failed"
    """The world had moved on since the approval; nothing fired."""
    FAILED = "failed"
    """The target refused definitely; nothing was applied."""
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    """A re-read proved that the world is as it was before the effect."""
    ROLLBACK_FAILED = "rollback_failed"
    UNKNOWN = "unknown"
    """It may have happened, or may still happen: a person must look."""
    CORRUPT = "corrupt"
    """Bytes, digest, chain or signature do not match: nothing runs."""
    ABANDONED = "abandoned"
    """A person closed it without a claim about the effect."""


S = State

NEXT: dict[State, frozenset[State]] = {
    S.WAITING_FOR_APPROVAL: frozenset(
        {S.APPROVED, S.REJECTED, S.CANCELLED, S.EXPIRED, S.UNKNOWN, S.CORRUPT}
    ),
    S.APPROVED: frozenset(
        {S.RUNNING, S.CANCELLED, S.EXPIRED, S.PRECONDITION_FAILED, S.UNKNOWN, S.CORRUPT}
    ),
    S.RUNNING: frozenset(
        {
            S.APPROVED,
            S.VERIFYING,
            S.COMMITTED,
            S.FAILED,
            S.ROLLING_BACK,
            S.UNKNOWN,
            S.CORRUPT,
        }
    ),
    S.VERIFYING: frozenset(
        {S.RUNNING, S.COMMITTED, S.FAILED, S.ROLLING_BACK, S.UNKNOWN, S.CORRUPT}
    ),
    S.ROLLING_BACK: frozenset({S.ROLLED_BACK, S.ROLLBACK_FAILED, S.UNKNOWN, S.CORRUPT}),
    S.UNKNOWN: frozenset({S.COMMITTED, S.ROLLED_BACK, S.ABANDONED, S.CORRUPT}),
    S.ROLLBACK_FAILED: frozenset({S.COMMITTED, S.ROLLED_BACK, S.ABANDONED, S.CORRUPT}),
    S.CORRUPT: frozenset({S.COMMITTED, S.ROLLED_BACK, S.ABANDONED}),
    S.COMMITTED: frozenset({S.CORRUPT}),
    S.REJECTED: frozenset({S.CORRUPT}),
    S.CANCELLED: frozenset({S.CORRUPT}),
    S.EXPIRED: frozenset({S.CORRUPT}),
    S.PRECONDITION_FAILED: frozenset({S.CORRUPT}),
    S.FAILED: frozenset({S.CORRUPT}),
    S.ROLLED_BACK: frozenset({S.CORRUPT}),
    S.ABANDONED: frozenset({S.CORRUPT}),
}
"""Every legal change of state. `VERIFYING -> RUNNING` is a second intent under the same key or
fence; `RUNNING -> APPROVED` is a worker that says that it did not send what it had intended;
`RUNNING -> COMMITTED` is a recovery that finds the effect already there;
`APPROVED -> UNKNOWN` is an effect that nobody intended, or a worker that dies at every try;
`WAITING_FOR_APPROVAL -> UNKNOWN` is a store whose history was rewound."""

BIRTH = frozenset({S.WAITING_FOR_APPROVAL, S.APPROVED})
"""Where an action may begin. A compensation begins approved: its plan was approved before."""

IN_FLIGHT = frozenset({S.RUNNING, S.VERIFYING})
"""An intent without an outcome."""

HALTED = frozenset({S.UNKNOWN, S.ROLLBACK_FAILED, S.CORRUPT})
"""Left only by a person's signed decision."""

CLOSED = frozenset(
    state for state, after in NEXT.items() if after <= {S.CORRUPT} and state not in HALTED
)
"""Final: nothing more will happen by itself or by hand."""

AT_REST = HALTED | CLOSED
OPEN = frozenset(State) - AT_REST


def mermaid() -> str:
    """The state diagram of the documentation, generated from the table (corruption left out)."""
    lines = ["stateDiagram-v2", f"    [*] --> {S.WAITING_FOR_APPROVAL}"]
    lines += [
        f"    {state} --> {after}"
        for state in State
        for after in State
        if after in NEXT[state] and after is not S.CORRUPT
    ]
    lines += [f"    {state} --> [*]" for state in State if state in CLOSED]
    return "\n".join(lines)
