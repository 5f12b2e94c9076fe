"""The name of every Redis key, in one place.

All carry the hash tag `{namespace}`, so that each script works on one Redis Cluster slot; further
namespaces scale out. Only leases and locks have a TTL: nothing that carries meaning expires.
"""

from dataclasses import dataclass

from tallystick.jobs.states import State


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace."""

    namespace: str

    def _name(self, *parts: str) -> str:
        return "{" + self.namespace + "}:" + ":".join(parts)

    def action(self, id: str) -> str:
        """Hash: content (canonical JSON), digest, state, seq, head, at, token, owner. No TTL."""
        return self._name("action", id)

    def journal(self, id: str) -> str:
        """List of canonical JSON lines, oldest first, append-only. No TTL."""
        return self._name("journal", id)

    def idempotency(self, key: str) -> str:
        """String `<id> <request digest>`, taken with SET NX semantics. No TTL."""
        return self._name("key", key)

    def lease(self, id: str) -> str:
        """String: the random token of the attempt that holds the action. Has a TTL."""
        return self._name("lease", id)

    def index(self, state: State | str) -> str:
        """Sorted set of the ids in this state, by the millisecond at which they entered it."""
        return self._name("in", str(state))

    @property
    def due(self) -> str:
        """Sorted set of ids by the millisecond (Redis TIME) at which somebody must look."""
        return self._name("due")

    @property
    def counters(self) -> str:
        """Hash of counter fields (see tallystick.metrics.counters)."""
        return self._name("counters")

    @property
    def marks(self) -> str:
        """Hash counter field -> JSON {at, action_id, trace_id}: the newest action behind it."""
        return self._name("marks")

    @property
    def leases(self) -> str:
        """Sorted set of the ids that are claimed, by the millisecond at which the lease ends."""
        return self._name("leases")

    @property
    def outbox(self) -> str:
        """List of alerts (canonical JSON) that no channel has delivered yet, oldest first."""
        return self._name("outbox")

    @property
    def attention(self) -> str:
        """Hash id -> attention counter field, while the action waits for a person."""
        return self._name("attention")

    @property
    def workers(self) -> str:
        """Sorted set of work-horse names by the millisecond of their last heartbeat."""
        return self._name("workers")

    @property
    def stops(self) -> str:
        """Hash scope -> journal line, while new intents of this scope are stopped."""
        return self._name("stops")

    @property
    def operations(self) -> str:
        """List of canonical JSON lines: who stopped and started what, append-only. No TTL."""
        return self._name("operations")

    @property
    def recoverer(self) -> str:
        """String: the token of the recoverer that is active now. Has a TTL."""
        return self._name("recoverer")

    @property
    def doctor(self) -> str:
        """String: what the doctor writes to see whether a write is kept, and removes. Has a TTL."""
        return self._name("doctor")
