"""What keeps a store going: what is due, who lives, what is counted, who must be told."""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.core.errors import StoreRefused
from tallystick.jobs.census import Census
from tallystick.jobs.record import Line, Tampered
from tallystick.jobs.states import OPEN, State
from tallystick.jobs.witness import Tail
from tallystick.metrics import counters
from tallystick.metrics.counters import Mark, ServerInfo, Snapshot

_WORKER_SILENCE_MS = 15_000
_OVERDUE_MS = 10_000

EVERYTHING = "*"
"""The scope of all action types."""


@dataclass(frozen=True, slots=True)
class History:
    """What the store says of its past."""

    name: str
    """Its random identity; empty before its first action."""
    tail: Tail
    kept: bool
    """Whether it still holds its end as that was seen."""


class Upkeep(Census):
    """The parts of the store that decide nothing about an action."""

    # --- what is due ---------------------------------------------------------------------------

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
        keys = [self.keys.recoverer, self.keys.due, self.keys.leases]
        self._script("release", keys, [recoverer, ""])

    def heartbeat(self, names: Sequence[str]) -> int:
        """Say that these work-horses live; the number of all that do."""
        return int(self._script("heartbeat", [self.keys.workers], [_WORKER_SILENCE_MS, *names]))

    def living(self) -> list[str]:
        """The names of the work-horses whose heartbeat is fresh."""
        with self._errors():
            seconds, micros = self._repeat(self._client.time)
            since = seconds * 1000 + micros // 1000 - _WORKER_SILENCE_MS
            return list(
                self._repeat(lambda: self._client.zrangebyscore(self.keys.workers, since, "+inf"))
            )

    def forget(self, names: Sequence[str]) -> None:
        """Say that these work-horses have ended."""
        if names:
            with self._errors():
                self._repeat(lambda: self._client.zrem(self.keys.workers, *names))

    def renew(self, id: str, owner: str, *, lease_ms: int) -> bool:
        """Lengthen a lease; False if it is not this attempt's any more."""
        return bool(self._script("renew", self._lease_keys(id), [owner, id, lease_ms]))

    def release(self, id: str, owner: str) -> bool:
        """Free the action of a dead work-horse and make it due now; False if it was not its."""
        return bool(self._script("release", self._lease_keys(id), [owner, id]))

    def _lease_keys(self, id: str) -> list[str]:
        return [self.keys.lease(id), self.keys.due, self.keys.leases]

    def unschedule(self, id: str) -> None:
        """Nobody needs to look at this action any more (it is closed, and its entry was stale)."""
        with self._errors():
            self._repeat(lambda: self._client.zrem(self.keys.due, id))

    def postpone(self, id: str, *, until_ms: int) -> None:
        """Have an action that is due looked at only then (milliseconds of the store's clock)."""
        with self._errors():
            self._repeat(lambda: self._client.zadd(self.keys.due, {id: until_ms}, xx=True))

    def due_now(self) -> int:
        """How many actions somebody must look at now."""
        with self._errors():
            seconds, micros = self._repeat(self._client.time)
            now = seconds * 1000 + micros // 1000
            return int(self._repeat(lambda: self._client.zcount(self.keys.due, "-inf", now)))

    def open_work(self) -> int:
        """How many actions are approved or in flight: what a burst of workers has to finish."""
        states = OPEN - {State.WAITING_FOR_APPROVAL}
        with self._errors():
            return sum(
                self._together(lambda pipe: [pipe.zcard(self.keys.index(s)) for s in states])
            )

    def check_writable(self) -> None:
        """Raise the `StoreError` that a write would raise now; nothing is written."""
        with self._errors():  # a SET of what must exist already, and does not
            self._client.set(self.keys.doctor, "", xx=True, keepttl=True)

    # --- the stop switch -----------------------------------------------------------------------

    def switch(self, scope: str, *, stop: bool, who: str, reason: str) -> None:
        """Forbid new intents of an action type (or of `EVERYTHING`), or allow them again.

        Once this returns, no intent is stored in that scope by any worker, anywhere.
        """
        event = "stopped" if stop else "started"
        self._operate("close" if stop else "open", scope, who, event, reason)

    def note_operation(self, *, who: str, event: str, why: str) -> None:
        """Write a line into the operations journal; nothing else changes."""
        self._operate("note", "", who, event, why)

    def _operate(self, mode: str, scope: str, who: str, event: str, why: str) -> None:
        keys = [self.keys.stops, self.keys.operations]
        while True:
            with self._errors():
                texts = self._repeat(lambda: self._client.lrange(self.keys.operations, -1, -1))
            line = _next_operation(texts, who, {"event": event, "scope": scope, "why": why})
            body = canonical.dumps(line.body() | {"hash": line.hash}).decode()
            args = [scope, mode, "".join(texts), body]
            code, found = self._script("stop", keys, args, settled=mode != "note")
            if code == "malformed":
                raise self._foreign(found)
            if code == "ok":
                return
            if line.hash in found:  # our own line, whose reply was lost
                if mode != "note":
                    self.confirm()
                return

    def stops(self) -> dict[str, Line | None]:
        """The scopes that are stopped, with the line that says by whom and why; None where it
        cannot be read (the stop holds all the same)."""
        with self._errors():
            found = self._repeat(lambda: self._client.hgetall(self.keys.stops))
        return {scope: next(iter(_readable([text])), None) for scope, text in found.items()}

    def operations(self) -> list[Line]:
        """Who stopped and started what, oldest first; what cannot be read is left out."""
        with self._errors():
            return _readable(self._repeat(lambda: self._client.lrange(self.keys.operations, 0, -1)))

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

    def history(self, seen: Tail | None = None) -> History:
        """How far history goes, and whether it still holds its end as it was `seen`."""
        seen = seen or Tail()
        keys = [self.keys.counters, self.keys.action(seen.id), self.keys.journal(seen.id)]
        told = [counters.MOVES, counters.EPOCH, seen.for_scripts()]
        wanted = [counters.IDENTITY, counters.MOVES, counters.EPOCH, counters.LAST]
        reply = self._script("history", keys, [*told, *wanted])
        if reply[0] == "malformed":
            raise self._foreign(reply[1])
        kept, name, moves, epoch, last = reply
        tail = Tail(
            self._whole(counters.MOVES, moves or None),
            epoch=self._whole(counters.EPOCH, epoch or None),
        )
        return History(name, tail.at(last), bool(kept))

    def rewind_is_over(self, done: Tail, seen: Tail) -> bool:
        """Begin a new epoch, unless somebody else has, or the store does not hold the end that
        history had when everything was halted (`done`): whether one has begun.

        It is later than any that was `seen`, and no other history has the same.
        """
        keys = [self.keys.counters, self.keys.action(done.id), self.keys.journal(done.id)]
        told = [counters.MOVES, counters.EPOCH, done.for_scripts()]
        reply = self._script("rewound", keys, [*told, seen.epoch + 1, counters.REWINDS])
        if reply[0] == "malformed":
            raise self._foreign(reply[1])
        return bool(reply[0] != "gone")

    def snapshot(self, *, queue_depth: int = 0) -> Snapshot:
        """All numbers at one instant; no command of it grows with the number of actions."""
        states, open_states = list(State), sorted(OPEN)
        with self._errors():
            seconds, micros = self._repeat(self._client.time)
            now = seconds * 1000 + micros // 1000

            def ask(pipe: Any) -> None:
                pipe.hgetall(self.keys.counters)
                pipe.hgetall(self.keys.marks)
                pipe.zcount(self.keys.leases, now, "+inf")
                pipe.zcount(self.keys.leases, "-inf", now)
                pipe.llen(self.keys.outbox)
                pipe.zcount(self.keys.workers, now - _WORKER_SILENCE_MS, "+inf")
                pipe.zcount(self.keys.due, "-inf", now - _OVERDUE_MS)
                pipe.hkeys(self.keys.stops)
                for state in states:
                    pipe.zcard(self.keys.index(state))
                for state in open_states:
                    pipe.zrange(self.keys.index(state), 0, 0, withscores=True)

            bumped, marks, held, lapsed, alerts, workers, overdue, stops, *rest = self._together(
                ask
            )
        sizes, firsts = rest[: len(states)], rest[len(states) :]
        return Snapshot(
            counters={field: int(n) for field, n in bumped.items() if n.lstrip("-").isdecimal()},
            marks=_marks(marks),
            leases_active=held,
            leases_overdue=lapsed,
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
            stops=tuple(sorted(stops)),
            server=self.server_info(),
        )

    def server_info(self) -> ServerInfo | None:
        """What the server tells of itself; None where it does not tell us."""
        try:
            with self._errors():
                told = self._repeat(
                    lambda: self._client.info("memory", "persistence", "stats", "replication")
                )
        except StoreRefused:  # not allowed to ask, or a server that cannot answer
            return None
        return ServerInfo(
            memory_used=int(told.get("used_memory", 0)),
            memory_max=int(told.get("maxmemory", 0)),
            evicted=int(told.get("evicted_keys", 0)),
            persistence={
                "aof_enabled": told.get("aof_enabled") == 1,
                "aof_last_write": told.get("aof_last_write_status", "ok") == "ok",
                "aof_last_rewrite": told.get("aof_last_bgrewrite_status", "ok") == "ok",
                "rdb_last_save": told.get("rdb_last_bgsave_status", "ok") == "ok",
            },
            replicas=int(told.get("connected_slaves", 0)),
        )

    def waiting_for_people(self) -> list[str]:
        """The ids of the actions that have called a person who has not answered."""
        with self._errors():
            return sorted(self._repeat(lambda: self._client.hkeys(self.keys.attention)))


def _marks(found: Mapping[str, str]) -> dict[str, Mark]:
    """What is remembered of the newest actions; what cannot be read is left out."""
    marks = {}
    for field, text in found.items():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            told = json.loads(text)
            id, trace = str(told["action_id"])[:16], str(told.get("trace_id", ""))[:32]
            marks[field] = Mark(id, int(told["at"]) / 1000, trace)
    return marks


def _next_operation(texts: Sequence[str], who: str, evidence: Mapping[str, Json]) -> Line:
    """The line that follows the last one of the operations journal, not yet stored.

    A last line that cannot be read does not keep anybody from stopping: the next one says so, and
    seals its text.
    """
    last: Line | None = None
    damage = ""
    if texts:
        try:
            last = Line.parse(texts[-1])
        except Tampered as problem:
            damage = canonical.digest(texts[-1].encode())
            evidence = {**evidence, "damaged": canonical.told(str(problem))}
    return Line(
        seq=last.seq + 1 if last else 1,
        at=0,
        from_state="",
        to_state="",
        who=who,
        worker="",
        token=0,
        evidence=evidence,
        prev=last.hash if last else damage,
        prev_at=last.at if last else 0,
    )


def _readable(texts: Iterable[str]) -> list[Line]:
    """The lines of the operations journal that can be read."""
    lines = []
    for text in texts:
        with contextlib.suppress(Tampered):
            lines.append(Line.parse(text))
    return lines
