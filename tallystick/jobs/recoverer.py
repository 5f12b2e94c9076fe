"""The recoverer: whatever is due and lies about is woken, and nobody's alert is lost.

It is part of every worker; a lock with a token makes one active at a time, and is checked at each
batch. Two at once would be harmless, since an action is claimed and not dispatched.
"""

import json
import logging
import secrets
from collections.abc import Callable

from tallystick.jobs.settings import Settings
from tallystick.jobs.store import Store
from tallystick.jobs.transport import Transport

log = logging.getLogger("tallystick.recoverer")
alerts = logging.getLogger("tallystick.alerts")

_BATCH = 100
_MOST_QUEUED = 500
"""Beyond so many wake-ups in the queue no more are added: the records wait as well."""
_LOCK_MS = 2000


_ALERT_FIELDS = (
    ("id", "action_id"),
    ("action", "action_type"),
    ("state", "state"),
    ("reason", "reason"),
    ("event", "journal_event"),
    ("seq", "seq"),
    ("runbook", "runbook"),
    ("next", "next"),
)
"""The facts of an alert that are logged, and the name of the field for each."""


def log_alert(alert: str) -> None:
    """The default channel: one line at level ERROR, with the alert's facts as its fields. Why it is
    so is left to the journal, since it may quote what a target said."""
    try:
        facts = dict(json.loads(alert))
    except (ValueError, TypeError):  # somebody else wrote it
        alerts.error("ALERT that cannot be read; find out who wrote to Redis")
        return
    fields = {field: facts[name] for name, field in _ALERT_FIELDS if name in facts}
    named = (facts.get(name, "?") for name in ("reason", "id", "state", "next"))
    alerts.error("ALERT %s: action %s is %s. Next: %s", *named, extra=fields)


class Recoverer:
    """Moves what is due into the queue, and alerts from the outbox to a channel.

    `deliver(alert)` gets each alert as canonical JSON, at least once; it raises to have it again
    at the next pass.
    """

    def __init__(
        self,
        store: Store,
        transport: Transport,
        settings: Settings,
        *,
        deliver: Callable[[str], None] = log_alert,
    ) -> None:
        self._store = store
        self._transport = transport
        self._again_ms = int(settings.lease_seconds * 1000)
        self._token = secrets.token_hex(8)
        self._deliver = deliver

    def tick(self) -> int:
        """One pass; the number of actions woken. 0 also if another recoverer is active."""
        woken = 0
        while self._transport.depth() < _MOST_QUEUED:
            due = self._store.sweep(
                self._token, lock_ms=_LOCK_MS, limit=_BATCH, again_ms=self._again_ms
            )
            if due is None:
                return woken
            for id, dispatch in due:
                self._transport.wake(id, dispatch)
            woken += len(due)
            if len(due) < _BATCH:
                break
        self._empty_outbox()
        return woken

    def stop(self) -> None:
        """Deliver what waits, and let another recoverer be the active one at once."""
        if self._store.sweep(self._token, lock_ms=_LOCK_MS, limit=0, again_ms=0) is not None:
            self._empty_outbox()
            self._store.step_down(self._token)

    def _empty_outbox(self) -> None:
        """Deliver every alert that waits; one whose delivery raises stays, with those after it."""
        for alert in self._store.alerts():
            try:
                self._deliver(alert)
            except Exception:  # whatever a channel raises: recovery goes on without it
                log.warning("an alert could not be delivered, and waits", exc_info=True)
                return
            self._store.delivered(alert)
