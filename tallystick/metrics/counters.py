"""The counter fields that the move script bumps, and the snapshot that an exporter reads.

A field is its family and labels joined by `|`. They live in one Redis hash and are written in the
same script as the change they count, so that no SIGKILL can separate the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SEPARATOR = "|"


def transition(action: str, state: str) -> str:
    """Committed changes of state, births included."""
    return _join("transitions", action, state)


def conflict(state: str) -> str:
    """Moves towards `state` that were refused: stale, illegal, or not the owner's."""
    return _join("conflicts", state)


def attention(action: str, reason: str) -> str:
    """A gauge: actions that wait for a person, for one of `ATTENTION`."""
    return _join("attention", action, reason)


def decision(outcome: str) -> str:
    """Decided proposals: approved, rejected, expired or cancelled."""
    return _join("decisions", outcome)


def precondition(action: str, answer: str) -> str:
    """Looks before the effect, by answer of the verdict."""
    return _join("preconditions", action, answer)


def verification(action: str, answer: str) -> str:
    """Finished verifications, by answer of the verdict."""
    return _join("verifications", action, answer)


def rollback(action: str, outcome: str) -> str:
    """Finished rollbacks: rolled_back or rollback_failed."""
    return _join("rollbacks", action, outcome)


def replay(action: str) -> str:
    """Proposals answered from the record that their idempotency key already owned."""
    return _join("replays", action)


def workhorse_exit(reason: str) -> str:
    """Work-horses that did not end by themselves: signal, deadline, hang or error."""
    return _join("workhorse_exits", reason)


def security_event(kind: str) -> str:
    """Refused attempts: foreign_job, corrupt_record."""
    return _join("security_events", kind)


def unknown_type(action: str) -> str:
    """Wake-ups left alone because this worker does not know the type or version."""
    return _join("unknown_types", action)


CANARY = "tallystick.canary"
"""The type of the action that goes through every stage on a schedule, to prove that they work."""

DRILL = "tallystick.drill"
"""The type of the action that lands wrong on purpose, to prove that rollback works."""

MOVES = "moves"
"""Every line of every journal: the length of history, by which a rewind is noticed."""

IDENTITY = "identity"
"""Not a counter: the random name of the store, which tells a restored store from another one."""

FENCE = "fence"
"""Not a counter: the highest fencing token that was given to an action of a fenced type."""

LAST = "last"
"""Not a counter: the last line of all journals, as `ID SEQ HASH`; where history ends."""

EPOCH = "epoch"
"""Not a counter: when a rewind was last found, in milliseconds of the store. What was seen of
history before is done with."""

REWINDS = "rewinds"
"""How often a worker found less history than it had seen."""

BARRIERS = "barriers"
"""How often a write was to be on the replicas' disks before anything else."""

BARRIERS_MISSED = "barriers_missed"
"""How often that was not confirmed in time, so that nothing was sent."""

FENCING_REJECTIONS = "fencing_rejections"
"""Moves refused because the lease had passed on to another worker."""

ATTENTION = ("verification_failed", "rollback_failed", "outcome_unknown", "not_applied", "corrupt")
"""Why a person is called."""


def stage(state: str) -> str:
    """The prefix of the fields that time how long actions stay in `state`."""
    return _join("stage", state)


STAGE_BOUNDS_MS: Mapping[str, tuple[int, ...]] = {
    "waiting_for_approval": (10_000, 60_000, 300_000, 1_800_000, 7_200_000, 28_800_000, 86_400_000),
    "approved": (100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 1_800_000),
    "running": (10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000),
    "verifying": (10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000),
    "rolling_back": (10, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000),
}
"""Upper bounds, in milliseconds, of the histogram of each stage. The script bumps
`stage|STATE|BOUND` of the first bound that fits (`inf` beyond the last) and adds the milliseconds
to `stage|STATE|sum`; the exporter accumulates."""


PERSISTENCE = ("aof_enabled", "aof_last_write", "aof_last_rewrite", "rdb_last_save")
"""The parts of keeping data on disk that Redis tells about."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest action behind a counter field: the exemplar of its series."""

    action_id: str
    at: float
    """Unix seconds."""
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What the server tells of itself."""

    memory_used: int
    """Bytes."""
    memory_max: int
    """Bytes; 0 is no limit."""
    evicted: int
    persistence: Mapping[str, bool]
    """By `PERSISTENCE`."""
    replicas: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the store shows at one instant; every part is O(1) in the number of actions."""

    counters: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """By counter field, for those of failures and of canaries."""
    actions: Mapping[str, int] = field(default_factory=dict)
    """Actions now, by state."""
    oldest: Mapping[str, float] = field(default_factory=dict)
    """Unix seconds at which the oldest action of a state entered it; absent where none."""
    workers: int = 0
    """Work-horses whose heartbeat is fresh."""
    leases_active: int = 0
    leases_overdue: int = 0
    """Leases that ran out, of actions that nobody has taken over."""
    overdue: int = 0
    """Actions that somebody should have looked at more than ten seconds ago."""
    queue_depth: int = 0
    """Wake-ups in the RQ queue."""
    stops: tuple[str, ...] = ()
    """The scopes (action types, or `*`) in which new intents are stopped."""
    undelivered_alerts: int = 0
    """Alerts in the outbox that no channel has taken yet."""
    server: ServerInfo | None = None
    """None where the server does not tell."""


def _join(*parts: str) -> str:
    return SEPARATOR.join(parts)
