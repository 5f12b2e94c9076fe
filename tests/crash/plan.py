"""Which scenarios there are. How many moments a run has shows only when it runs, so the plan is of
*units*: for one protection and path, every moment of the first run, and for each of those every
moment of the recovery."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from tallystick import Protection
from tests.crash.actions import COMMIT, COMPENSATED, IN_BAND
from tests.crash.inprocess import DECIDE, NAME
from tests.crash.scenario import Outcome, Scenario, Strike, Victim

Play = Callable[[Scenario], Outcome]

SINGLE = (
    Victim.HORSE,
    Victim.PARENT,
    Victim.BOTH,
    Victim.REDIS,
    Victim.OUTAGE,
    Victim.CONNECTION,
    Victim.FROZEN,
    Victim.UNHEARD,
    Victim.CALL,
)

DOUBLE = (
    (Victim.BOTH, Victim.BOTH),
    (Victim.HORSE, Victim.CONNECTION),
    (Victim.CONNECTION, Victim.HORSE),
    (Victim.PARENT, Victim.BOTH),
    (Victim.FROZEN, Victim.FROZEN),
    (Victim.FROZEN, Victim.BOTH),
    (Victim.UNHEARD, Victim.FROZEN),
    (Victim.CALL, Victim.CALL),
    (Victim.CALL, Victim.BOTH),
    (Victim.CALL, Victim.FROZEN),
)
"""A second blow during the recovery from the first. Twice frozen: the first wakes at that moment of
the second's run; and a call under way arrives then."""

COSTLY = ((Victim.REDIS, Victim.HORSE), (Victim.BOTH, Victim.REDIS), (Victim.OUTAGE, Victim.BOTH))
"""The same with a server that must be started again: fewer of these."""

SERVER = frozenset({Victim.REDIS, Victim.OUTAGE})

CLIENTS = (Victim.HORSE, Victim.REDIS, Victim.OUTAGE, Victim.CONNECTION)
"""Who can be struck while it is proposed and approved; the work-horse is the client here."""


@dataclass(frozen=True, slots=True)
class Unit:
    """All scenarios of one protection and path in which these are struck.

    Of the first moments every `stride`-th is taken, of the second every `second_stride`-th, both
    beginning at `offset` + 1.
    """

    protection: Protection
    path: str
    first: Victim | None
    second: Victim | None = None
    stride: int = 1
    second_stride: int = 1
    offset: int = 0

    def run(self, play: Play) -> Iterator[Outcome]:
        """Play them; what a run did not reach is not yielded."""
        if self.first is None:
            yield play(Scenario(NAME, self.protection, self.path))
            return
        moment, more = 1 + self.offset, True
        while more:
            more = yield from self._from(play, Strike(moment, self.first))
            moment += self.stride

    def _from(self, play: Play, first: Strike) -> Generator[Outcome, None, bool]:
        """All that begin with this strike; whether the run came so far."""
        at = first.moment if isinstance(first.moment, int) else 0
        other = 1 + (self.offset + at) % self.second_stride
        while True:
            second = [Strike(other, self.second)] if self.second else []
            outcome = play(Scenario(NAME, self.protection, self.path, (first, *second)))
            if outcome.counts:
                yield outcome
            if not outcome.counts or not second:
                return bool(outcome.struck)
            other += self.second_stride


def whole() -> list[Unit]:
    """The whole matrix of the fast driver, the longest units first."""
    units = []
    for protection in Protection:
        units += [Unit(protection, path, None) for path in PATHS]
        units += [Unit(protection, DECIDE, victim) for victim in CLIENTS]
        for path, sparse in ((COMMIT, 1), (IN_BAND, 4), (COMPENSATED, 11)):
            for victim in SINGLE:
                stride = 3 if path == COMPENSATED and victim in SERVER else 1
                units.append(Unit(protection, path, victim, None, stride))
            for first, second in DOUBLE:
                step = 1 if first is second else 2
                stride = 1 if first is Victim.CALL else step * sparse
                units.append(Unit(protection, path, first, second, stride, sparse))
            for first, second in COSTLY:
                units.append(Unit(protection, path, first, second, 4 * sparse, 2 * sparse))
    return sorted(units, key=_weight, reverse=True)


def cut() -> list[Unit]:
    """A representative smaller cut."""
    units = []
    for at, protection in enumerate(Protection):
        units += [Unit(protection, path, None) for path in PATHS]
        for path, stride in ((COMMIT, 3), (IN_BAND, 7), (COMPENSATED, 19)):
            for victim in (Victim.BOTH, Victim.CONNECTION, Victim.FROZEN):
                units.append(Unit(protection, path, victim, None, stride, offset=at % stride))
            units.append(Unit(protection, path, Victim.REDIS, None, 4 * stride, offset=at))
        units.append(Unit(protection, COMMIT, Victim.BOTH, Victim.BOTH, 5, 5, offset=at))
        units.append(Unit(protection, COMMIT, Victim.FROZEN, Victim.FROZEN, 4, 5, offset=at % 4))
        units.append(Unit(protection, COMMIT, Victim.UNHEARD, Victim.FROZEN, 4, 5, offset=at % 4))
        units += [Unit(protection, path, Victim.CALL, Victim.CALL) for path in (COMMIT, IN_BAND)]
    return units


PATHS = (DECIDE, COMMIT, IN_BAND, COMPENSATED)

_LENGTH = {DECIDE: 1, COMMIT: 1, IN_BAND: 3, COMPENSATED: 10}


def _weight(unit: Unit) -> float:
    """About how long a unit takes."""
    slow = 6 if {unit.first, unit.second} & SERVER else 1
    seconds = 12 / unit.second_stride if unit.second else 1
    return slow * _LENGTH[unit.path] * seconds / unit.stride
