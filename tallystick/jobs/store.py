"""The store: the only module that sends commands to Redis, one method per script.

Every script is idempotent for the same arguments, so a call whose reply was lost is repeated here;
whatever is not an explicit OK raises, and means "not done, not owner".
"""

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from tallystick.core import canonical
from tallystick.core.errors import Conflict, LeaseLost, StoreRefused, UnknownId
from tallystick.jobs import consequences
from tallystick.jobs.connection import Client, LinkDown, connect, safe_url, translated_errors
from tallystick.jobs.keys import Keys
from tallystick.jobs.record import (
    Content,
    Line,
    Record,
    Stored,
    Tampered,
    Tip,
    first_line,
    tip_of_damage,
    unseal,
)
from tallystick.jobs.states import AT_REST, OPEN, State
from tallystick.metrics import counters
from tallystick.metrics.counters import Snapshot

_PAUSE_SECONDS = (0.05, 0.25)
_WORKER_SILENCE_MS = 15_000
_OVERDUE_MS = 10_000


class Store:
    """The records of one namespace."""

    def __init__(self, client: Client, namespace: str, *, url: str = "redis") -> None:
        self.keys = Keys(namespace)
        self._client = client
        self._url = url
        lua = files("tallystick.jobs") / "lua"
        common = (lua / "common.lua").read_text()
        self._scripts = {
            name: client.register_script(common + (lua / f"{name}.lua").read_text())
            for name in (
                "heartbeat",
                "move",
                "propose",
                "quarantine",
                "read",
                "release",
                "renew",
                "sweep",
            )
        }

    @classmethod
    def connect(cls, url: str, namespace: str, *, timeout: float = 5) -> "Store":
        """The store at this URL; nothing is sent yet. `timeout` bounds each command, in seconds."""
        client = connect(url, timeout=timeout, retries=False, decode=True)
        return cls(client, namespace, url=safe_url(url))

    # --- birth ---------------------------------------------------------------------------

    def owner_of(self, key: str) -> tuple[tuple[str, str] | None, int]:
        """The id and request digest that own this idempotency key, if any; and the store's clock
        in milliseconds."""
        with self._errors():
            pipe = self._client.pipeline(transaction=True)
            pipe.get(self.keys.idempotency(key))
            pipe.time()
            mark, (seconds, micros) = self._repeat(pipe.execute)
        now = seconds * 1000 + micros // 1000
        return (_mark(mark) if mark else None), now

    def propose(
        self, content: Content, request: str, state: State, *, who: str, event: str, due_ms: int
    ) -> tuple[str, str]:
        """Store a new action under its idempotency key, unless the key has an owner.

        Returns the id and request digest that own the key now: ours, or the earlier ones.
        """
        text, digest = content.sealed()
        line = first_line(digest, state, who=who, event=event)
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
            ],
        )
        if code == "malformed":
            raise StoreRefused(url=self._url, problem=f"the key {found} is of a foreign type")
        return _mark(found) if code == "owned" else (content.id, request)

    # --- reading -------------------------------------------------------------------------

    def read(self, id: str) -> Stored:
        """What is stored, not yet believed. Raises `UnknownId`."""
        keys = [self.keys.action(id), self.keys.journal(id), self.keys.lease(id)]
        reply = self._script("read", keys, [])
        if len(reply) == 1:
            raise UnknownId(id=id)
        if reply[1] == "malformed":
            return Stored(id, int(reply[0]), -2, {}, [], malformed=reply[2])
        now, lease_ms, flat, journal = reply
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        return Stored(id, int(now), int(lease_ms), fields, journal)

    def load(self, id: str) -> Record:
        """The record, its seals checked. Raises `UnknownId`, `Tampered`."""
        return unseal(self.read(id))

    def ids(self, state: State | None = None, *, limit: int = 100) -> list[str]:
        """The ids in a state (or in all), newest first, at most `limit`."""
        with self._errors():
            pipe = self._client.pipeline(transaction=False)
            for one in [state] if state else list(State):
                pipe.zrange(self.keys.index(one), 0, limit - 1, desc=True, withscores=True)
            found = [pair for part in self._repeat(pipe.execute) for pair in part]
        return [id for id, _ in sorted(found, key=lambda pair: -pair[1])[:limit]]

    def waiting_for_people(self) -> list[str]:
        """The ids of the actions that have called a person who has not answered."""
        with self._errors():
            return sorted(self._repeat(lambda: self._client.hkeys(self.keys.attention)))

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
        `LeaseLost` if this record's claim is over, `Conflict` if the action has moved meanwhile.
        """
        while True:
            line = record.tip.line(to, who=who, worker=worker, evidence=evidence)
            owner = "" if lease == "drop" else record.owner
            reply = self._move(record, record.tip, line, owner, lease, lease_ms, due_ms)
            if reply[0] == "ok":
                return record.then(line, at=int(reply[1]), owner=owner, lease_ms=int(reply[2]))
            what, found = reply[1], reply[2]
            if what != "head":
                error = LeaseLost if record.owner and what != "state" else Conflict
                raise error(id=record.id, what=what, found=found)
            fresh = self.load(record.id)  # a note was added meanwhile, or our reply was lost
            if any(stored.hash == line.hash for stored in fresh.lines):
                return fresh
            if fresh.state is not record.state or fresh.token != record.token:
                raise Conflict(id=record.id, what="state", found=fresh.state)
            record = fresh

    def claim(self, record: Record, *, worker: str, lease_ms: int) -> Record:
        """Take the lease and the next fencing token. Raises `LeaseLost` or `Conflict` if someone
        else was faster."""
        owner = secrets.token_hex(8)
        line = record.tip.line(
            record.state,
            who=worker,
            worker=worker,
            token=record.token + 1,
            evidence={"event": "claimed", "lease": owner},
        )
        reply = self._move(record, record.tip, line, owner, "take", lease_ms, lease_ms)
        if reply[0] == "ok":
            return record.then(line, at=int(reply[1]), owner=owner, lease_ms=int(reply[2]))
        error = LeaseLost if reply[1] == "lease" else Conflict
        raise error(id=record.id, what=reply[1], found=reply[2])

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
        action = record.content.action if record else "corrupt"
        follows = consequences.of(line, id=id, action=action)
        guard = {
            "state": tip.state,
            "token": str(tip.token),
            "owner": tip.owner,
            "head": tip.head,
        }
        change = {
            "state": line.to_state,
            "token": str(line.token),
            "owner": owner,
            "seq": str(line.seq),
            "lease": lease,
            "lease_ms": lease_ms,
            "conflict": counters.conflict(line.to_state),
            "bump": follows.bump,
            "due_ms": due_ms,
            "alert": follows.alert,
            "attention": follows.attention,
        }
        bounds = counters.STAGE_BOUNDS_MS.get(tip.state)
        if bounds and line.to_state != tip.state:
            change |= {"stage": counters.stage(tip.state), "bounds": bounds}
        given = {name: value for name, value in change.items() if value is not None}
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
            ],
            [
                id,
                json.dumps(guard),
                _text(line.body() | {"hash": line.hash}),
                line.hash,
                json.dumps(given),
            ],
        )
        if reply[0] == "missing":
            raise UnknownId(id=id)
        if reply[0] == "malformed":
            raise Tampered(f"the key {reply[1]} is of a foreign type")
        return reply  # type: ignore[no-any-return]

    def quarantine(self, stored: Stored, problem: str, *, worker: str) -> None:
        """Close an action whose seals do not match: `corrupt`, counted, alerted, never run."""
        while stored.fields.get("state") != State.CORRUPT:
            tip = tip_of_damage(stored)
            evidence = {
                "event": "corrupt",
                "why": canonical.told(problem),
                "may_have_happened": tip.state in _ACTED,
            }
            line = tip.line(State.CORRUPT, who=worker, worker=worker, evidence=evidence)
            action = _action_name(stored)
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
                ],
            )
            if reply[0] == "ok":
                return
            stored = self.read(stored.id)

    # --- leases, sweeping, heartbeats --------------------------------------------------------

    def renew(self, id: str, owner: str, *, lease_ms: int) -> bool:
        """Lengthen a lease; False if it is not this attempt's any more."""
        keys = [self.keys.lease(id), self.keys.due]
        return bool(self._script("renew", keys, [owner, id, lease_ms]))

    def release(self, id: str, owner: str) -> bool:
        """Free the action of a dead work-horse and make it due now; False if it was not its."""
        return bool(self._script("release", [self.keys.lease(id), self.keys.due], [owner, id]))

    def sweep(
        self, recoverer: str, *, lock_ms: int, limit: int, again_ms: int
    ) -> list[tuple[str, str]] | None:
        """Take what is due, as (id, dispatch) pairs; None if another recoverer is active."""
        keys = [self.keys.recoverer, self.keys.due]
        code, *flat = self._script("sweep", keys, [recoverer, lock_ms, limit, again_ms])
        if code == "busy":
            return None
        return list(zip(flat[::2], flat[1::2], strict=True))

    def step_down(self, recoverer: str) -> None:
        """Give up being the active recoverer, if this token is."""
        self._script("release", [self.keys.recoverer, self.keys.due], [recoverer, ""])

    def heartbeat(self, names: Sequence[str]) -> int:
        """Say that these work-horses live; the number of all that do."""
        return int(self._script("heartbeat", [self.keys.workers], [_WORKER_SILENCE_MS, *names]))

    def forget(self, names: Sequence[str]) -> None:
        """Say that these work-horses have ended."""
        if names:
            with self._errors():
                self._repeat(lambda: self._client.zrem(self.keys.workers, *names))

    def unschedule(self, id: str) -> None:
        """Nobody needs to look at this action any more (it is closed, and its entry was stale)."""
        with self._errors():
            self._repeat(lambda: self._client.zrem(self.keys.due, id))

    def due_now(self) -> int:
        """How many actions somebody must look at now."""
        with self._errors():
            seconds, micros = self._repeat(self._client.time)
            now = seconds * 1000 + micros // 1000
            return int(self._repeat(lambda: self._client.zcount(self.keys.due, "-inf", now)))

    def open_work(self) -> int:
        """How many actions are approved or in flight: what a burst of workers has to finish."""
        with self._errors():
            pipe = self._client.pipeline(transaction=False)
            for state in OPEN - {State.WAITING_FOR_APPROVAL}:
                pipe.zcard(self.keys.index(state))
            return sum(self._repeat(pipe.execute))

    # --- alerts and counters ---------------------------------------------------------------

    def alerts(self, limit: int = 100) -> list[str]:
        """The oldest undelivered alerts, as canonical JSON."""
        with self._errors():
            found = self._repeat(lambda: self._client.lrange(self.keys.outbox, 0, limit - 1))
            return list(found)

    def delivered(self, alert: str) -> None:
        """Take an alert out of the outbox; call it after the delivery, never before."""
        with self._errors():
            self._repeat(lambda: self._client.lrem(self.keys.outbox, 1, alert))

    def bump(self, field: str) -> None:
        """Count an event that belongs to no move (a refused job, a dead work-horse)."""
        with self._errors():
            self._client.hincrby(self.keys.counters, field, 1)

    def snapshot(self, *, queue_depth: int = 0) -> Snapshot:
        """All numbers at one instant, in one round trip; no scan grows with the actions."""
        states, open_states = list(State), sorted(OPEN)
        with self._errors():
            seconds, micros = self._repeat(self._client.time)
            now = seconds * 1000 + micros // 1000
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(self.keys.counters)
            pipe.llen(self.keys.outbox)
            pipe.zcount(self.keys.workers, now - _WORKER_SILENCE_MS, "+inf")
            pipe.zcount(self.keys.due, "-inf", now - _OVERDUE_MS)
            for state in states:
                pipe.zcard(self.keys.index(state))
            for state in open_states:
                pipe.zrange(self.keys.index(state), 0, 0, withscores=True)
            bumped, alerts, workers, overdue, *rest = self._repeat(pipe.execute)
        sizes, firsts = rest[: len(states)], rest[len(states) :]
        return Snapshot(
            counters={field: int(n) for field, n in bumped.items() if n.lstrip("-").isdecimal()},
            actions=dict(zip(states, sizes, strict=True)),
            oldest={
                state: first[0][1] / 1000
                for state, first in zip(open_states, firsts, strict=True)
                if first
            },
            workers=workers,
            overdue=overdue,
            queue_depth=queue_depth,
            undelivered_alerts=alerts,
        )

    # --- the wire ----------------------------------------------------------------------------

    def ping(self) -> None:
        """Raise a `StoreError` unless the server answers."""
        with self._errors():
            self._client.ping()

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def _script(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        with self._errors():
            return self._repeat(lambda: self._scripts[name](keys=keys, args=args))

    def _repeat(self, call: Callable[[], Any]) -> Any:
        for pause in (*_PAUSE_SECONDS, None):
            try:
                return call()
            except LinkDown:
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        with translated_errors(self._url):
            yield


_ACTED = {State.RUNNING, State.VERIFYING, State.ROLLING_BACK}
assert not _ACTED & AT_REST


def _mark(text: str) -> tuple[str, str]:
    id, _, request = text.partition(" ")
    return id, request


def _text(line: Mapping[str, Any]) -> str:
    """The canonical text of a journal line that the script will put the time into."""
    return canonical.dumps(line).decode()


def _action_name(stored: Stored) -> str:
    """The type that a damaged record claims to be, if it is a usable label."""
    try:
        name = json.loads(stored.fields.get("content", ""))["action"]
    except (ValueError, KeyError, TypeError):
        return "corrupt"
    return name if isinstance(name, str) and counters.SEPARATOR not in name else "corrupt"
