"""The store of actions: one method per script, and every move guarded by one of them.

Every script is idempotent for the same arguments, so a call whose reply was lost is repeated here;
whatever is not an explicit OK raises, and means "not done, not owner".
"""

import json
import secrets
from collections.abc import Mapping
from typing import Any

from tallystick.core import canonical
from tallystick.core.errors import (
    Conflict,
    IllegalMove,
    LeaseLost,
    Stopped,
    UnknownId,
)
from tallystick.jobs import consequences, telling
from tallystick.jobs.action import Protection
from tallystick.jobs.guards import fence, gate, guard, relied_on
from tallystick.jobs.reading import Reading
from tallystick.jobs.record import Content, Line, Record, Stored, Tip, first_line
from tallystick.jobs.seals import is_quarantined, reachable, tip_of_damage
from tallystick.jobs.states import AT_REST, BIRTH, State
from tallystick.jobs.witness import Tail
from tallystick.metrics import counters
from tallystick.telemetry import traces


class Store(Reading):
    """The records of one namespace."""

    # --- birth ---------------------------------------------------------------------------

    def owner_of(self, key: str) -> tuple[tuple[str, str] | None, int]:
        """The id and request digest that own this idempotency key, if any; and the store's clock
        in milliseconds."""
        with self._errors():
            mark, (seconds, micros) = self._together(
                lambda pipe: (pipe.get(self.keys.idempotency(key)), pipe.time())
            )
        now = seconds * 1000 + micros // 1000
        return (_mark(mark) if mark else None), now

    def propose(
        self,
        content: Content,
        request: str,
        state: State,
        *,
        who: str,
        event: str,
        due_ms: int,
        parent: Record | None = None,
    ) -> tuple[str, str]:
        """Store a new action under its idempotency key, unless the key has an owner.

        Returns the id and request digest that own the key now: ours, or the earlier ones. With
        `parent`, an action that the caller holds, only while it still does; else `LeaseLost`.
        """
        text, digest = content.sealed()
        line = first_line(digest, state, who=who, event=event, trace=traces.traceparent())
        bump = consequences.of(line, id=content.id, action=content.action).bump
        code, found = self._script(
            "propose",
            [
                self.keys.idempotency(content.key),
                self.keys.action(content.id),
                self.keys.journal(content.id),
                self.keys.index(state),
                self.keys.due,
                self.keys.counters,
                *([self.keys.action(parent.id)] if parent else []),
            ],
            [
                content.id,
                f"{content.id} {request}",
                text,
                digest,
                _text(line.body() | {"hash": line.hash}),
                line.hash,
                state,
                due_ms,
                json.dumps(bump),
                secrets.token_hex(8),
                counters.IDENTITY,
                json.dumps(guard(parent.tip) if parent else {}),
                counters.LAST,
                end_of_history(content.id, line),
            ],
            settled=True,
        )
        if code == "malformed":
            raise self._foreign(found)
        if code == "refused":
            raise LeaseLost(id=content.compensates, what="claim", found=found)
        owner = _mark(found) if code == "owned" else (content.id, request)
        if owner[0] == content.id:
            telling.stored(line, id=content.id, action=content.action)
        return owner

    # --- moving --------------------------------------------------------------------------

    def move(
        self,
        record: Record,
        to: State,
        *,
        who: str,
        evidence: Mapping[str, Any],
        worker: str = "",
        lease: str = "leave",
        lease_ms: int = 0,
        due_ms: int | None = None,
    ) -> Record:
        """Take one step, or write a note (`to` is the state it is in), and return what is now.

        `lease` is `hold` (and it must be ours), `keep`, `drop` or `leave`; see move.lua. Raises
        `LeaseLost` if this record's claim is over, `Conflict` if the action has moved meanwhile,
        and with replicas `NotReplicated` if others may not have a step that somebody relies on.
        """
        while True:
            line = record.tip.line(to, who=who, worker=worker, evidence=evidence)
            owner = "" if lease == "drop" else record.owner
            reply = self._move(record, record.tip, line, owner, lease, lease_ms, due_ms)
            if reply[0] == "ok":
                return record.then(line, at=int(reply[1]), owner=owner, lease_ms=int(reply[2]))
            what, found = reply[1], reply[2]
            if what == "stopped":
                raise Stopped(id=record.id, scope=found)
            fresh = self.load(record.id)
            stored = next((one for one in fresh.lines if one.hash == line.hash), None)
            if stored is not None:  # the reply was lost, and more came on top
                telling.stored(line, id=record.id, record=record)
                if relied_on(record, line, lease):
                    self.confirm()
                then = record.then(line, at=stored.at, owner=owner)
                if lease == "leave" or self._still_ours(then, fresh):
                    return fresh
                if lease == "drop":
                    return then
                raise LeaseLost(id=record.id, what="owner", found=fresh.owner)
            if what == "head" and self._still_ours(record, fresh):
                record = fresh  # a note came meanwhile, and the claim is still ours
                continue
            error = LeaseLost if record.owner and what != "state" else Conflict
            raise error(id=record.id, what=what, found=found)

    @staticmethod
    def _still_ours(record: Record, fresh: Record) -> bool:
        return fresh.state is record.state and fresh.tip.owner == record.owner != ""

    def claim(
        self,
        record: Record,
        *,
        worker: str,
        lease_ms: int,
        owner: str = "",
        again: bool = False,
    ) -> Record:
        """Take the lease (as `owner`, a random text) and the next fencing token; `again`, only the
        token, on our own lease.

        The tokens of fenced types grow across all their actions, since a target keeps one fence
        for a resource and not for an action. Raises `LeaseLost` or `Conflict` if someone else was
        faster, `Stopped` if nothing may begin.
        """
        if self.unsettled and record.state is State.APPROVED:
            self.confirm()  # as long as replicas are away nothing new begins
        owner, lease = (record.owner, "hold") if again else (owner or new_owner(), "take")
        fenced = record.content.protection == Protection.FENCED
        highest = record.fence if fenced else 0
        while True:
            line = record.tip.line(
                record.state,
                who=worker,
                worker=worker,
                token=max(record.token, highest) + 1,
                evidence={"event": "claimed", "lease": owner},
            )
            reply = self._move(record, record.tip, line, owner, lease, lease_ms, lease_ms)
            if reply[0] == "ok":
                return record.then(line, at=int(reply[1]), owner=owner, lease_ms=int(reply[2]))
            if reply[1] == "stopped":
                raise Stopped(id=record.id, scope=reply[2])
            if reply[1] == "fence":
                highest = int(reply[2])  # another action of a fenced type was claimed meanwhile
                continue
            fresh = self.load(record.id)
            held = (fresh.owner, fresh.state) == (owner, record.state)
            if held and any(stored.hash == line.hash for stored in fresh.lines):
                return fresh  # it is ours; the reply was lost, and a note came on top
            if reply[1] != "head" or not self._still_ours(record, fresh):
                error = LeaseLost if again or reply[1] == "lease" else Conflict
                raise error(id=record.id, what=reply[1], found=reply[2])
            record = fresh  # a note came meanwhile, and the claim is still ours

    def close_damage(
        self, stored: Stored, to: State, *, who: str, evidence: Mapping[str, Any]
    ) -> None:
        """Close a quarantined action by a person's decision; its content is not believed."""
        tip = tip_of_damage(stored)
        line = tip.line(to, who=who, evidence=evidence)
        reply = self._move(None, tip, line, "", "drop", 0, -1, id=stored.id)
        if reply[0] != "ok":
            raise Conflict(id=stored.id, what=reply[1], found=reply[2])

    def _move(
        self,
        record: Record | None,
        tip: Tip,
        line: Line,
        owner: str,
        lease: str,
        lease_ms: int,
        due_ms: int | None,
        id: str = "",
    ) -> list[str]:
        id = record.id if record else id
        if line.to_state not in reachable(tip.state):
            self.bump(counters.conflict(line.to_state))
            remedy = "No arrow leads there."
            raise IllegalMove(id=id, state=tip.state, to=line.to_state, remedy=remedy)
        change = self._change(record, tip, line, id=id) | {
            "owner": owner,
            "lease": lease,
            "lease_ms": lease_ms,
            "due_ms": due_ms,
        }
        given = {name: value for name, value in change.items() if value is not None}
        settled = relied_on(record, line, lease)
        reply = self._script(
            "move",
            [
                self.keys.action(id),
                self.keys.journal(id),
                self.keys.lease(id),
                self.keys.due,
                self.keys.index(tip.state),
                self.keys.index(line.to_state),
                self.keys.counters,
                self.keys.outbox,
                self.keys.attention,
                self.keys.stops,
                self.keys.leases,
                self.keys.marks,
            ],
            [
                id,
                json.dumps(guard(tip) | {"head": tip.head}),
                _text(line.body() | {"hash": line.hash}),
                line.hash,
                json.dumps(given),
            ],
            settled=settled,
        )
        if reply[0] == "missing":
            raise UnknownId(id=id)
        if reply[0] == "malformed":
            raise self._foreign(reply[1])
        if reply[0] == "ok":
            telling.stored(line, id=id, record=record)
            if settled or not self.replicas:
                self.tell_witness(Tail(int(reply[3]), id, line.seq, line.hash, int(reply[4])))
        return reply  # type: ignore[no-any-return]

    @staticmethod
    def _change(record: Record | None, tip: Tip, line: Line, *, id: str) -> dict[str, Any]:
        """What follows from a line, for the script; None where nothing does."""
        action = record.content.action if record else "corrupt"
        trace = record.trace if record else ""
        follows = consequences.of(line, id=id, action=action, trace=trace)
        bounds = counters.STAGE_BOUNDS_MS.get(tip.state) if line.to_state != tip.state else None
        return {
            "state": line.to_state,
            "token": str(line.token),
            "seq": str(line.seq),
            "moves": counters.MOVES,
            "epoch": counters.EPOCH,
            "last": [counters.LAST, end_of_history(id, line)],
            "conflict": counters.conflict(line.to_state),
            "bump": follows.bump,
            "mark": follows.mark or None,
            "newest": follows.newest or None,
            "alert": follows.alert,
            "attention": follows.attention,
            "gate": gate(record, line) if record else None,
            "fence": fence(record, line) if record else None,
            "stage": counters.stage(tip.state) if bounds else None,
            "bounds": bounds,
        }

    def quarantine(self, stored: Stored, problem: str, *, worker: str) -> None:
        """Close an action whose seals do not match: `corrupt`, counted, alerted, never run."""
        while not is_quarantined(stored):
            tip = tip_of_damage(stored)
            evidence = {
                "event": "corrupt",
                "why": canonical.told(problem),
                "may_have_happened": tip.state in _ACTED,
            }
            line = tip.line(State.CORRUPT, who=worker, worker=worker, evidence=evidence)
            action = self._label(stored)
            follows = consequences.of(line, id=stored.id, action=action)
            others = [self.keys.index(state) for state in State if state is not State.CORRUPT]
            reply = self._script(
                "quarantine",
                [
                    self.keys.action(stored.id),
                    self.keys.journal(stored.id),
                    self.keys.lease(stored.id),
                    self.keys.due,
                    self.keys.counters,
                    self.keys.outbox,
                    self.keys.attention,
                    self.keys.index(State.CORRUPT),
                    self.keys.leases,
                    self.keys.marks,
                    *others,
                ],
                [
                    stored.id,
                    stored.fields.get("state", ""),
                    stored.fields.get("head", ""),
                    _text(line.body() | {"hash": line.hash}),
                    line.hash,
                    State.CORRUPT,
                    line.seq,
                    json.dumps(follows.bump),
                    follows.alert or "",
                    follows.attention or "",
                    line.token,
                    json.dumps(follows.mark),
                    follows.newest,
                    counters.LAST,
                    end_of_history(stored.id, line),
                ],
            )
            if reply[0] == "malformed":
                raise self._foreign(reply[1])
            if reply[0] == "ok":
                telling.stored(line, id=stored.id, action=action)
                return
            stored = self.read(stored.id)

    def _label(self, stored: Stored) -> str:
        """The type that a damaged record names, if actions of it were ever counted; a name that
        somebody made up is no label."""
        try:
            name = json.loads(stored.fields.get("content", ""))["action"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return "corrupt"
        births = [counters.transition(str(name), state) for state in sorted(BIRTH)]
        with self._errors():
            known = self._repeat(lambda: self._client.hmget(self.keys.counters, births))
        return str(name) if any(known) else "corrupt"


_ACTED = {State.RUNNING, State.VERIFYING, State.ROLLING_BACK}
assert not _ACTED & AT_REST


def new_owner() -> str:
    """A name for one claim, which nobody else has."""
    return secrets.token_hex(8)


def end_of_history(id: str, line: Line) -> str:
    """A line as the end of all history, in the form that `Tail.at` reads."""
    return f"{id} {line.seq} {line.hash}"


def _mark(text: str) -> tuple[str, str]:
    id, _, request = text.partition(" ")
    return id, request


def _text(line: Mapping[str, Any]) -> str:
    """The canonical text of a journal line that the script will put the time into."""
    return canonical.dumps(line).decode()
