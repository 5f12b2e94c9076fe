"""The audit: every journal counted anew, and compared with whatever follows from it.

Counters, indexes, open calls and idempotency records are written in the same script as the journal
line that they follow from, so any difference means that Redis lost a write or that somebody else
wrote. Nothing is mended here. It may run while the queue works.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from tallystick.approvals import Keyring
from tallystick.jobs.census import Kept
from tallystick.jobs.record import Line, NewerSchema, Record, Stored, Tampered
from tallystick.jobs.recount import NOBODY, Difference, Recount, call_of, open_calls
from tallystick.jobs.resolution import closed_by_hand
from tallystick.jobs.seals import is_quarantined, unseal
from tallystick.jobs.states import AT_REST, OPEN
from tallystick.jobs.store import Store
from tallystick.jobs.view import iso

_BATCH = 500


class Report(BaseModel):
    """What an audit found."""

    model_config = ConfigDict(frozen=True)

    at: str
    """The instant of the totals, by the store's clock."""
    actions: int
    lines: int
    """Journal lines up to that instant."""
    unbelieved: tuple[str, ...]
    """The actions that are closed as corrupt, or were written by a newer version: nobody can tell
    under which type their lines were counted."""
    differences: tuple[Difference, ...]


@dataclass
class Auditor:
    """Takes one action after the other."""

    keyring: Keyring
    recount: Recount
    actions: int = 0
    unbelieved: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def take(self, kept: Kept) -> str:
        """Count one action and check where it is listed; the idempotency key that it must own,
        empty if that cannot be known."""
        stored = kept.stored
        if not stored.fields and not stored.journal and not stored.malformed:
            self._differ(stored.id, "is listed", _places(kept), "no record and no journal")
            return ""
        self.actions += 1
        try:
            record = unseal(stored)
        except Tampered as problem:
            self._take_damaged(stored, problem)
            return ""
        self.recount.add(record.id, record.content.action, record.lines)
        self._check_places(record, kept)
        return record.content.key

    def _take_damaged(self, stored: Stored, problem: Tampered) -> None:
        closed = is_quarantined(stored) or closed_by_hand(stored, self.keyring)
        if closed or isinstance(problem, NewerSchema):
            self.unbelieved.append(stored.id)
        else:
            self._differ(stored.id, "record", str(problem), "seals that match")
        lines, unreadable = _readable(stored.journal)
        self.recount.add(stored.id, NOBODY, lines, unreadable)

    def _check_places(self, record: Record, kept: Kept) -> None:
        self._compare(record.id, "index", ", ".join(kept.states), str(record.state))
        if record.state in OPEN and not kept.due:
            self._differ(record.id, "due", "never", "somebody must look again")
        if record.state in AT_REST and kept.claimed:
            self._differ(record.id, "leases", "claimed", "at rest")
        call = call_of(record.id, record.content.action, record.lines)
        self._compare(record.id, "attention", kept.attention, call)

    def owns(self, id: str, key: str, owner: str) -> None:
        """Check who owns the idempotency key of an action."""
        self._compare(id, f"owner of its key {key}", owner, id)

    def _compare(self, id: str, what: str, stored: str, recounted: str) -> None:
        if stored != recounted:
            self._differ(id, what, stored, recounted)

    def _differ(self, id: str, what: str, stored: str, recounted: str) -> None:
        where = f"action {id}: {what}"
        self.differences.append(Difference(where, stored or "nothing", recounted or "nothing"))


def audit(store: Store, keyring: Keyring) -> Report:
    """Recount the whole store. It takes as long as there are actions, and changes nothing."""
    totals = store.totals()
    auditor = Auditor(keyring, Recount(totals.at))
    for batch in _batches(sorted(store.every_id())):
        keys = [(kept.stored.id, auditor.take(kept)) for kept in store.inspect(batch)]
        owned = [(id, key) for id, key in keys if key]
        owners = store.owners([key for _, key in owned])
        for (id, key), owner in zip(owned, owners, strict=True):
            auditor.owns(id, key, owner)
    sums = [
        *auditor.recount.differences(totals.counters, totals.sizes),
        *open_calls(totals.counters, totals.attention.values()),
    ]
    return Report(
        at=iso(totals.at),
        actions=auditor.actions,
        lines=auditor.recount.lines,
        unbelieved=tuple(auditor.unbelieved),
        differences=(*auditor.differences, *sums),
    )


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(ids), _BATCH):
        yield ids[first : first + _BATCH]


def _readable(journal: Sequence[str]) -> tuple[list[Line], int]:
    """The lines that can be read, and how many cannot."""
    lines = []
    for text in journal:
        try:
            lines.append(Line.parse(text))
        except Tampered:
            continue
    return lines, len(journal) - len(lines)


def _places(kept: Kept) -> str:
    listed = [*kept.states]
    listed += ["due"] if kept.due else []
    listed += ["leases"] if kept.claimed else []
    listed += ["attention"] if kept.attention else []
    return ", ".join(listed)
