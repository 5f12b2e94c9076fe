"""What an auditor reads: every action, wherever it is kept, and the totals of one instant."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from tallystick.jobs.record import Stored
from tallystick.jobs.states import State
from tallystick.jobs.wire import Wire

_BATCH = 100
_SCAN = 1000


@dataclass(frozen=True, slots=True)
class Totals:
    """What the store says in sum, at one instant."""

    at: int
    """Milliseconds of the store's clock."""
    counters: Mapping[str, str]
    sizes: Mapping[str, int]
    """How many actions the index of each state holds."""
    attention: Mapping[str, str]
    """Id -> counter field, of the actions that wait for a person."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One action, and the places where it is listed."""

    stored: Stored
    states: tuple[str, ...]
    """The states whose index holds it."""
    due: bool
    claimed: bool
    attention: str
    """The counter field that it raises; empty if it waits for nobody."""


class Census(Wire):
    """The readings of an audit: as many as there are actions, and none that blocks for long."""

    def totals(self) -> Totals:
        """The counters, the sizes of the indexes and the open calls, all at the same instant."""
        states = list(State)

        def ask(pipe: Any) -> None:
            pipe.time()
            pipe.hgetall(self.keys.counters)
            pipe.hgetall(self.keys.attention)
            for state in states:
                pipe.zcard(self.keys.index(state))

        with self._errors():
            (seconds, micros), counted, attention, *sizes = self._together(ask)
        at = seconds * 1000 + micros // 1000
        return Totals(at, counted, dict(zip(states, sizes, strict=True)), attention)

    def every_id(self) -> set[str]:
        """The ids of all actions that were there before and after: those that have a record or a
        journal, and those that anything lists."""
        heads = (self.keys.action(""), self.keys.journal(""))
        named = chain.from_iterable(self._scan_keys(head) for head in heads)
        lists = (self.keys.due, self.keys.leases, *map(self.keys.index, State))
        listed = chain.from_iterable(map(self._scan_members, lists))
        with self._errors():
            waiting = [str(id) for id in self._client.hkeys(self.keys.attention)]
            return {*named, *listed, *waiting}

    def _scan_keys(self, head: str) -> Iterator[str]:
        with self._errors():
            for key in self._client.scan_iter(match=f"{head}*", count=_SCAN):
                if ":" not in (id := key.removeprefix(head)):  # not what was moved aside
                    yield id

    def _scan_members(self, key: str) -> Iterator[str]:
        with self._errors():
            for id, _ in self._client.zscan_iter(key, count=_SCAN):
                yield id

    def inspect(self, ids: Sequence[str]) -> Iterator[Kept]:
        """Each of these actions, at an instant of its own."""
        for first in range(0, len(ids), _BATCH):
            some = ids[first : first + _BATCH]
            with self._errors():
                replies = self._together(partial(self._ask, ids=some))
            for id, reply in zip(some, replies, strict=True):
                yield _kept(id, reply)

    def _ask(self, pipe: Any, ids: Sequence[str]) -> None:
        shared = [self.keys.due, self.keys.leases, self.keys.attention]
        indexes = [self.keys.index(state) for state in State]
        for id in ids:
            keys = [self.keys.action(id), self.keys.journal(id), *shared, *indexes]
            self._scripts["inspect"](keys=keys, args=[id], client=pipe)

    def owners(self, keys: Sequence[str]) -> list[str]:
        """The ids that own these idempotency keys, in their order; empty where nobody does."""
        if not keys:
            return []
        with self._errors():
            marks = self._repeat(
                lambda: self._client.mget([self.keys.idempotency(key) for key in keys])
            )
        return [(mark or "").partition(" ")[0] for mark in marks]


def _kept(id: str, reply: Sequence[Any]) -> Kept:
    now, malformed, flat, journal, due, claimed, attention, *places = reply
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    stored = Stored(id, int(now), -2, fields, journal, malformed=malformed)
    states = list(State)
    listed = tuple(str(states[number - 1]) for number in places)
    return Kept(stored, listed, bool(due), bool(claimed), attention)
