"""What can be made to happen, in one form for both drivers: who is struck, and at which moment.

A *moment* is a point of a run that a strike can hit: before a command is sent, after it ran and
before its reply, and around each call of the target. They are counted from 1, from the beginning
of a run, and anew from each strike on.
"""

from dataclasses import dataclass
from enum import StrEnum

from tallystick import Protection


class Victim(StrEnum):
    """Who is struck."""

    HORSE = "work-horse"
    """The process that runs the action is killed; its parent lives and frees what it held."""
    PARENT = "parent"
    """The worker parent is killed. The kernel kills its work-horse with it (Linux); in process,
    the orphan goes on until it next speaks to its parent, as it does elsewhere."""
    BOTH = "both"
    """Worker parent and work-horse are killed: the lease must run out."""
    REDIS = "redis"
    """The server is killed with the command in flight, and is back at once."""
    OUTAGE = "redis, for long"
    """The server is killed, and stays away until the worker gives up or waits."""
    CONNECTION = "connection"
    """The link is cut; everybody lives."""
    FROZEN = "frozen"
    """Parent and work-horse stop past the lease, another worker takes over, and they go on: at
    the end, or, if the next strike is `FROZEN` too, at that moment of the other's run."""
    UNHEARD = "frozen, unheard"
    """The same, and what was asked at that moment has no answer: it is repeated on waking."""
    CALL = "call under way"
    """A call of the target gets no answer, and arrives late: when all is at rest, or, if the next
    strike is `CALL` too, at that moment."""


STAND_STILL = frozenset({Victim.FROZEN, Victim.UNHEARD})


@dataclass(frozen=True, slots=True)
class Strike:
    """One blow: at a numbered moment, or at a point of the target, by name."""

    moment: int | str
    victim: Victim
    of_parent: bool = False
    """The moments are those of the worker parent's own commands."""

    def __str__(self) -> str:
        whose = " of the parent" if self.of_parent else ""
        return f"{self.victim} at {self.moment}{whose}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One action, and what happens to those who run it."""

    driver: str
    protection: Protection
    path: str
    strikes: tuple[Strike, ...] = ()

    @property
    def victim(self) -> str:
        """The column of the matrix."""
        if not self.strikes:
            return "nobody"
        return str(self.strikes[0].victim)

    def __str__(self) -> str:
        blows = ", then ".join(str(strike) for strike in self.strikes) or "nothing"
        return f"{self.driver} {self.path}.{self.protection}: {blows}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: which, and what the books show."""

    check: str
    found: str

    def __str__(self) -> str:
        return f"{self.check}: {self.found}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a scenario ended. `struck` names the moments that were hit; fewer than the scenario
    asks mean that the run was over before, so it is not counted."""

    scenario: Scenario
    struck: tuple[str, ...]
    state: str
    effects: int
    violations: tuple[Violation, ...] = ()
    journal: tuple[str, ...] = ()
    id: str = ""

    @property
    def counts(self) -> bool:
        return len(self.struck) == len(self.scenario.strikes)
