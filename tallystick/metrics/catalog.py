"""Every metric family that the exporter shows: one table, which the collector and the docs follow.

Names and label values are forever: rules and dashboards of others hang on them. No label holds an
id, a person, a target or the text of an error, so that the number of series stays bounded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

from tallystick.metrics import counters
from tallystick.metrics.counters import ATTENTION, MOVES, PERSISTENCE, STAGE_BOUNDS_MS
from tallystick.verifiers import Answer


class Given(Enum):
    """Label values that the collector is told, because the catalog cannot know them."""

    ACTION_TYPES = "the registered action types"
    STATES = "the states"
    OPEN_STATES = "the states that are not final"
    VERSION = "the installed version"


Values: TypeAlias = Given | tuple[str, ...]
"""Whence the values of a label come: from outside, or the closed list itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One row of the table; it equals only itself."""

    name: str
    type: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: Mapping[str, Values] = field(default_factory=dict)
    counted: str = ""
    """First part of the counter fields that it shows; their other parts are its labels, in order.
    Empty for a family with another source."""

    def sample_names(self) -> tuple[str, ...]:
        """The names under which a query finds its samples."""
        if self.type == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name,)


_TYPES = Given.ACTION_TYPES
_STATES = Given.STATES
_ANSWERS = tuple(answer.value for answer in Answer)

JOURNAL_LINES = Family(
    "tallystick_journal_lines_total",
    "counter",
    "Lines of all journals; it never goes back unless Redis lost what it had confirmed.",
    counted=MOVES,
)
TRANSITIONS = Family(
    "tallystick_transitions_total",
    "counter",
    "Committed changes of state, births included.",
    {"action_type": _TYPES, "to_state": _STATES},
    counted="transitions",
)
CONFLICTS = Family(
    "tallystick_transition_conflicts_total",
    "counter",
    "Moves that were refused because they were stale, illegal or not the owner's.",
    {"to_state": _STATES},
    counted="conflicts",
)
ATTENTION_OPEN = Family(
    "tallystick_attention_open",
    "gauge",
    "Actions that wait for a person; only resolve and acknowledge take them off.",
    {"action_type": _TYPES, "reason": ATTENTION},
    counted="attention",
)
ACTIONS = Family(
    "tallystick_actions",
    "gauge",
    "Actions now, by state.",
    {"state": _STATES},
)
OLDEST = Family(
    "tallystick_oldest_action_entered_timestamp_seconds",
    "gauge",
    "Unix time at which the oldest action of an open state entered it; absent where there is none.",
    {"state": Given.OPEN_STATES},
)
STAGE_DURATION = Family(
    "tallystick_stage_duration_seconds",
    "histogram",
    "How long actions stayed in a state before they left it.",
    {"stage": tuple(STAGE_BOUNDS_MS)},
)
DECISIONS = Family(
    "tallystick_decisions_total",
    "counter",
    "Proposals that were decided, or that nobody decided in time.",
    {"decision": ("approved", "rejected", "expired", "cancelled")},
    counted="decisions",
)
PRECONDITIONS = Family(
    "tallystick_precondition_checks_total",
    "counter",
    "Looks at the target before the effect, by answer.",
    {"action_type": _TYPES, "result": _ANSWERS},
    counted="preconditions",
)
VERIFICATIONS = Family(
    "tallystick_verifications_total",
    "counter",
    "Finished verifications of effects, by answer; what was not applied has none.",
    {"action_type": _TYPES, "result": _ANSWERS},
    counted="verifications",
)
ROLLBACKS = Family(
    "tallystick_rollbacks_total",
    "counter",
    "Finished rollbacks, by outcome.",
    {"action_type": _TYPES, "result": ("rolled_back", "rollback_failed")},
    counted="rollbacks",
)
REPLAYS = Family(
    "tallystick_idempotent_replays_total",
    "counter",
    "Proposals answered from the record that already owned their idempotency key.",
    {"action_type": _TYPES},
    counted="replays",
)
FENCING_REJECTIONS = Family(
    "tallystick_fencing_rejections_total",
    "counter",
    "Moves refused because the lease had passed on to another worker.",
    counted="fencing_rejections",
)
WORKHORSE_EXITS = Family(
    "tallystick_workhorse_exits_total",
    "counter",
    "Work-horses that did not end by themselves.",
    {"reason": ("signal", "deadline", "hang", "error")},
    counted="workhorse_exits",
)
SECURITY_EVENTS = Family(
    "tallystick_security_events_total",
    "counter",
    "Refused attempts to run what was not approved.",
    {"kind": ("foreign_job", "corrupt_record")},
    counted="security_events",
)
UNKNOWN_TYPES = Family(
    "tallystick_unknown_types_total",
    "counter",
    "Wake-ups left alone because the worker does not know the action type or its version.",
    {"action_type": _TYPES},
    counted="unknown_types",
)
LEASES_ACTIVE = Family(
    "tallystick_leases_active", "gauge", "Actions that a worker holds by a lease that runs."
)
LEASES_OVERDUE = Family(
    "tallystick_leases_overdue",
    "gauge",
    "Actions whose lease ran out and that no other worker has taken over yet.",
)
CANARY_COMMITTED = Family(
    "tallystick_canary_last_committed_timestamp_seconds",
    "gauge",
    "Unix time at which a canary was last committed, 0 if never; absent until one is proposed.",
)
CANARY_ROLLED_BACK = Family(
    "tallystick_canary_last_rolled_back_timestamp_seconds",
    "gauge",
    "Unix time at which a drill was last rolled back, 0 if never; absent until one is proposed.",
)
REWINDS = Family(
    "tallystick_history_rewinds_total",
    "counter",
    "How often workers found that the store knew less than they had seen, or was another one.",
    counted=counters.REWINDS,
)
BARRIERS = Family(
    "tallystick_replica_barriers_total",
    "counter",
    "Writes that were to be on the replicas' disks before anybody went by them.",
    counted=counters.BARRIERS,
)
BARRIERS_MISSED = Family(
    "tallystick_replica_barriers_missed_total",
    "counter",
    "Those that were not confirmed in time, so that nobody did.",
    counted=counters.BARRIERS_MISSED,
)
WORKERS = Family("tallystick_workers", "gauge", "Work-horses whose heartbeat is fresh.")
OVERDUE = Family(
    "tallystick_overdue_actions",
    "gauge",
    "Actions that somebody should have looked at more than ten seconds ago.",
)
QUEUE_DEPTH = Family("tallystick_queue_depth", "gauge", "Wake-ups in the queue.")
UNDELIVERED = Family(
    "tallystick_undelivered_alerts", "gauge", "Alerts that no channel has taken yet."
)
STOPPED = Family(
    "tallystick_stopped",
    "gauge",
    "1 while no new action of the type may begin; the type `*` is all of them.",
    {"action_type": _TYPES},
)
REDIS_UP = Family(
    "tallystick_redis_up",
    "gauge",
    "1 if the exporter could read Redis for this answer; at 0 it shows only its own families.",
)
REDIS_MEMORY_USED = Family(
    "tallystick_redis_memory_used_bytes", "gauge", "Memory that Redis has allocated."
)
REDIS_MEMORY_MAX = Family(
    "tallystick_redis_memory_max_bytes", "gauge", "Memory that Redis may allocate; 0 is no limit."
)
REDIS_EVICTED = Family(
    "tallystick_redis_evicted_keys_total",
    "counter",
    "Keys that Redis threw away to save memory since it started; must stay 0.",
)
REDIS_PERSISTENCE = Family(
    "tallystick_redis_persistence_ok",
    "gauge",
    "1 if this part of keeping data on disk worked the last time, or is switched on.",
    {"check": PERSISTENCE},
)
REDIS_REPLICAS = Family("tallystick_redis_replicas", "gauge", "Replicas that are connected.")
COLLECT_DURATION = Family(
    "tallystick_exporter_collect_duration_seconds",
    "gauge",
    "How long the exporter took to read Redis for this answer.",
)
COLLECT_ERRORS = Family(
    "tallystick_exporter_collect_errors_total",
    "counter",
    "Reads of Redis that failed since the exporter started.",
)
BUILD_INFO = Family(
    "tallystick_build_info",
    "info",
    "Always 1; the label names the version of the exporter.",
    {"version": Given.VERSION},
)

FAMILIES = (
    JOURNAL_LINES,
    TRANSITIONS,
    CONFLICTS,
    ATTENTION_OPEN,
    ACTIONS,
    OLDEST,
    STAGE_DURATION,
    DECISIONS,
    PRECONDITIONS,
    VERIFICATIONS,
    ROLLBACKS,
    REPLAYS,
    FENCING_REJECTIONS,
    WORKHORSE_EXITS,
    SECURITY_EVENTS,
    UNKNOWN_TYPES,
    REWINDS,
    BARRIERS,
    BARRIERS_MISSED,
    WORKERS,
    LEASES_ACTIVE,
    LEASES_OVERDUE,
    OVERDUE,
    QUEUE_DEPTH,
    UNDELIVERED,
    STOPPED,
    CANARY_COMMITTED,
    CANARY_ROLLED_BACK,
    REDIS_UP,
    REDIS_MEMORY_USED,
    REDIS_MEMORY_MAX,
    REDIS_EVICTED,
    REDIS_PERSISTENCE,
    REDIS_REPLICAS,
    COLLECT_DURATION,
    COLLECT_ERRORS,
    BUILD_INFO,
)
"""The whole table, in the order in which it is shown."""
