"""What the store shows: one action, or the ids of many."""

from tallystick.core.errors import UnknownId
from tallystick.jobs.record import Record, Stored
from tallystick.jobs.seals import unseal
from tallystick.jobs.states import OPEN, State
from tallystick.jobs.survey import Surveyor
from tallystick.jobs.witness import Tail, Witness
from tallystick.metrics import counters

_LISTED = sorted(OPEN, key=lambda state: (state is State.ROLLING_BACK, state))
"""What undoes an action stands before that."""


class Reading(Surveyor):
    """The parts of the store that change nothing."""

    witness: Witness | None = None
    """Who is told of every line that this process stores, and asked whether they are all there."""
    _identity = ""
    """The store's, as it was last read."""
    _compared = 0
    """How many connections there had been when history was last compared with the witness."""

    def read(self, id: str, seen: Tail | None = None) -> Stored:
        """What is stored, not yet believed; and whether history still holds its end as that was
        `seen`. Raises `UnknownId`."""
        seen = seen or Tail()
        keys = [self.keys.action(id), self.keys.journal(id), self.keys.lease(id)]
        shared = [self.keys.counters, self.keys.action(seen.id), self.keys.journal(seen.id)]
        wanted = [counters.MOVES, counters.EPOCH, counters.IDENTITY, counters.FENCE]
        reply = self._script("read", [*keys, *shared], [*wanted, seen.for_scripts()])
        if len(reply) == 1:
            raise UnknownId(id=id)
        if reply[1] == "malformed":
            if reply[2] == self.keys.counters:
                raise self._foreign(reply[2])
            flat, journal = reply[3], reply[4]
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            return Stored(id, int(reply[0]), -2, fields, journal, malformed=reply[2])
        now, lease_ms, flat, journal, moves, epoch, self._identity, fence, kept = reply
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        self._whole(counters.MOVES, moves)
        self._whole(counters.EPOCH, epoch)
        highest = self._whole(counters.FENCE, fence)
        return Stored(id, int(now), int(lease_ms), fields, journal, fence=highest, kept=bool(kept))

    def read_unless_rewound(self, id: str) -> Stored | None:
        """What is stored, if the store still holds what this host has seen of its history.

        Raises `UnknownId`.
        """
        while True:
            identity = self._identity
            seen = self.witness.seen(identity) if self.witness else Tail()
            stored = self.read(id, seen)  # after the witness: others go on writing
            if self._identity == identity or self.witness is None or stored.malformed:
                return stored if stored.malformed or stored.kept else None

    def tell_witness(self, tail: Tail) -> None:
        """Have the witness know of a line that this process has just stored.

        Whoever has a new connection since they last did may have stored it in another history than
        the one that the witness knows; then that must stand, until it has been noticed.
        """
        if self.witness is None:
            return
        if self._compared != self.connections:
            seen = self.witness.seen(self._identity)
            if not self.history(seen).kept:
                return
            self._compared = self.connections
        self.witness.saw(self._identity, tail)

    def load(self, id: str) -> Record:
        """The record, its seals checked. Raises `UnknownId`, `Tampered`."""
        return unseal(self.read(id))

    def all_open(self) -> tuple[int, list[str]]:
        """The ids of all that is open, and the epoch of history, at one instant."""
        with self._errors():
            epoch, *parts = self._together(
                lambda pipe: [
                    pipe.hget(self.keys.counters, counters.EPOCH),
                    *(pipe.zrange(self.keys.index(state), 0, -1) for state in _LISTED),
                ]
            )
        return self._whole(counters.EPOCH, epoch), [id for part in parts for id in part]

    def ids(self, state: State | None = None, *, limit: int | None = 100) -> list[str]:
        """The ids in a state (or in all), newest first, at most `limit` (None: every one)."""
        last = -1 if limit is None else limit - 1
        if limit == 0:
            return []
        indexes = [self.keys.index(one) for one in ([state] if state else list(State))]
        with self._errors():
            parts = self._together(
                lambda pipe: [
                    pipe.zrange(index, 0, last, desc=True, withscores=True) for index in indexes
                ]
            )
        found = sorted((pair for part in parts for pair in part), key=lambda pair: -pair[1])
        return [id for id, _ in found[:limit]]
