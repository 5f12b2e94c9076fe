"""A bounded look at everything at once, for whoever wants to know how things stand.

No command here grows with the number of actions: sizes and counts of ranges come from the indexes,
and of the actions themselves only the first few of each kind are named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.jobs.record import LATEST
from tallystick.jobs.states import AT_REST, HALTED, State
from tallystick.jobs.upkeep import Upkeep
from tallystick.metrics.counters import Snapshot

_HOUR_MS = 3_600_000
_AHEAD = 1000
"""So many of what is due next are searched for approval windows that end soon."""
_SAMPLE = 100
"""So many of the actions that call a person are looked at beside the newest of each state."""
_MOST_WORKERS = 50

UNDER_WAY = (State.RUNNING, State.VERIFYING, State.ROLLING_BACK)
"""Where a worker is at it, or was."""

_CALLING = (*sorted(HALTED), State.FAILED, State.ROLLING_BACK, State.ROLLED_BACK)
"""Where an action that calls a person usually is."""

_RESTING = tuple(sorted(AT_REST))


@dataclass(frozen=True, slots=True)
class Found:
    """One action as the indexes show it: not read, and not checked."""

    id: str
    state: str
    since: int
    """The millisecond of the store's clock at which it entered this state."""
    lease_ms: int = -2
    """What is left of its lease; negative if nobody holds it."""
    attention: str = ""
    """The counter field of the call for a person that nobody has acknowledged; else empty."""


@dataclass(frozen=True, slots=True)
class Survey:
    """How a namespace stands. Lists are samples, of the length that was asked for at most."""

    now: int
    """The store's clock, in milliseconds."""
    numbers: Snapshot
    last_hour: Mapping[str, int]
    """Actions that came within the last hour to where they rest, by state."""
    waiting: Sequence[str]
    """What waits for approval; whose window ends soonest comes first."""
    under_way: Sequence[Found]
    """Oldest first."""
    calling: Sequence[Found]
    """What is halted, or calls a person and is not acknowledged: the latter first, newest first."""
    unacknowledged: int
    workers: Sequence[str]
    """Names of work-horses that live, 50 at most."""
    oldest_due: int | None
    """The millisecond at which somebody should look, or should have, soonest of all."""


class Surveyor(Upkeep):
    """The part of the store that looks at all of it."""

    def survey(self, *, limit: int, queue_depth: int = 0) -> Survey:
        """How things stand, with at most `limit` actions of each kind; five round trips."""
        numbers = self.snapshot(queue_depth=queue_depth)
        with self._errors():
            seconds, micros = self._repeat(self._client.time)
            now = seconds * 1000 + micros // 1000
            resting, ranges = self._ranges(now, limit)
            waiting, leases, attention, strangers = self._details(ranges, limit)
        under_way = [
            Found(id, state, since, lease)
            for (id, state, since), lease in zip(ranges.under_way, leases, strict=True)
        ]
        calling = [
            Found(id, state, since, attention=field or "")
            for (id, state, since), field in zip(ranges.calling, attention, strict=True)
            if field or state in HALTED
        ] + strangers
        calling.sort(key=lambda one: (not one.attention, -one.since))
        return Survey(
            now,
            numbers,
            resting,
            waiting,
            under_way,
            calling[:limit],
            ranges.unacknowledged,
            ranges.workers,
            ranges.oldest_due,
        )

    def _ranges(self, now: int, limit: int) -> tuple[dict[str, int], "_Ranges"]:
        """The beginnings of all indexes, in one trip."""

        def ask(pipe: Any) -> None:
            for state in _RESTING:
                pipe.zcount(self.keys.index(state), now - _HOUR_MS, "+inf")
            for state in UNDER_WAY:
                pipe.zrange(self.keys.index(state), 0, limit - 1, withscores=True)
            for state in _CALLING:
                pipe.zrange(self.keys.index(state), 0, limit - 1, desc=True, withscores=True)
            pipe.zrange(self.keys.index(State.WAITING_FOR_APPROVAL), 0, limit - 1)
            pipe.zrange(self.keys.due, now, "+inf", byscore=True, offset=0, num=_AHEAD)
            pipe.hlen(self.keys.attention)
            pipe.hscan(self.keys.attention, count=_SAMPLE)
            pipe.zrange(self.keys.workers, 0, _MOST_WORKERS - 1, desc=True)
            pipe.zrange(self.keys.due, 0, 0, withscores=True)

        replies = iter(self._together(ask))
        resting = {str(state): int(next(replies)) for state in _RESTING}
        under_way = _listed(UNDER_WAY, replies)
        calling = _listed(_CALLING, replies)
        waiting, ahead, unacknowledged, (_, sample), workers, due = replies
        return resting, _Ranges(
            sorted(under_way, key=lambda one: one[2])[:limit],
            calling,
            waiting,
            ahead,
            dict(list(sample.items())[:_SAMPLE]),
            unacknowledged,
            workers,
            when(due[0][1]) if due else None,
        )

    def _details(
        self, ranges: "_Ranges", limit: int
    ) -> tuple[list[str], list[int], list[str | None], list[Found]]:
        """Who of them waits and until when, who is leased, who calls: in one trip."""
        asked = list(dict.fromkeys([*ranges.waiting, *ranges.ahead])) or [""]
        calling = [id for id, _, _ in ranges.calling]
        others = [id for id in ranges.sample if id not in calling]

        def ask(pipe: Any) -> None:
            pipe.zmscore(self.keys.index(State.WAITING_FOR_APPROVAL), asked)
            pipe.zmscore(self.keys.due, asked)
            pipe.hmget(self.keys.attention, calling or [""])
            for id, _, _ in ranges.under_way:
                pipe.pttl(self.keys.lease(id))
            for id in others:
                pipe.hmget(self.keys.action(id), "state", "at")

        entered, due, attention, *rest = self._together(ask)
        ends = [
            (end or 0, id)
            for id, since, end in zip(asked, entered, due, strict=True)
            if since is not None
        ]
        leases, states = rest[: len(ranges.under_way)], rest[len(ranges.under_way) :]
        strangers = [
            Found(id, _known(state), when(float(at or 0)), attention=ranges.sample[id])
            for id, (state, at) in zip(others, states, strict=True)
        ]
        return [id for _, id in sorted(ends)[:limit]], leases, attention[: len(calling)], strangers


@dataclass(frozen=True, slots=True)
class _Ranges:
    under_way: list[tuple[str, State, int]]
    calling: list[tuple[str, State, int]]
    waiting: list[str]
    ahead: list[str]
    sample: dict[str, str]
    unacknowledged: int
    workers: list[str]
    oldest_due: int | None


def _listed(states: Sequence[State], replies: Any) -> list[tuple[str, State, int]]:
    """Id, state and since when, of the next replies, one for each state."""
    return [(id, state, when(since)) for state in states for id, since in next(replies)]


def when(score: float) -> int:
    """A score as a millisecond that has a date, whatever somebody made of it."""
    return int(min(max(score, 0), LATEST))


def _known(state: str | None) -> State:
    """A stored state; what is none is damage."""
    return State(state) if state in set(State) else State.CORRUPT
