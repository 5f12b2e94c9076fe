"""Runs the plan in several processes, and adds up what came out."""

import contextlib
import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import util

from tests.crash import mutants, real, zombies
from tests.crash.arena import Arena
from tests.crash.broken import MUTANTS
from tests.crash.inprocess import Place
from tests.crash.mutants import Caught
from tests.crash.plan import Unit
from tests.crash.scenario import Outcome, Scenario
from tests.crash.zombies import Woken, Zombie

_CHUNK = 6

Row = tuple[str, str, str, str, str]
"""Driver, protection, path, victim, final state."""


@dataclass
class Total:
    """How many scenarios ended how, and those in which a promise was broken."""

    rows: Counter[Row] = field(default_factory=Counter)
    broken: Counter[Row] = field(default_factory=Counter)
    """How many of these broke a promise."""
    bad: list[Outcome] = field(default_factory=list)
    missed: int = 0
    """Scenarios whose strike came after the run was over; they are not counted."""
    woken: list[Woken] = field(default_factory=list)

    @property
    def scenarios(self) -> int:
        return self.rows.total()

    def add(self, outcome: Outcome) -> None:
        at = outcome.scenario
        row = at.driver, at.protection.value, at.path, at.victim, outcome.state
        if outcome.violations:
            self.bad.append(outcome)
            self.broken[row] += 1
        if outcome.counts or outcome.violations:
            self.rows[row] += 1
        else:
            self.missed += 1

    def merge(self, other: "Total") -> None:
        self.rows += other.rows
        self.broken += other.broken
        self.bad += other.bad
        self.missed += other.missed
        self.woken += other.woken


Task = Callable[[], Total]


def run(tasks: Sequence[Task], jobs: int) -> Iterator[Total]:
    """Run all tasks in so many processes; the totals of each as it ends."""
    with _pool(jobs) as pool:
        pending: set[Future[Total]] = {pool.submit(task) for task in tasks}
        for done in as_completed(pending):
            yield done.result()


def hunted(jobs: int) -> Iterator[Caught]:
    """Hunt every mutant."""
    with _pool(jobs) as pool:
        yield from pool.map(hunt_one, range(len(MUTANTS)))


def _pool(jobs: int) -> ProcessPoolExecutor:
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_quiet)


# --- in a process of the pool --------------------------------------------------------------------

_open = contextlib.ExitStack()
_place: Place | None = None
_arena: Arena | None = None


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    util.Finalize(None, _open.close, exitpriority=1)


def place() -> Place:
    """The place of this process."""
    global _place
    if _place is None:
        _place = _open.enter_context(Place.open())
    return _place


def arena() -> Arena:
    """The arena of this process."""
    global _arena
    if _arena is None:
        _arena = _open.enter_context(Arena.open())
    return _arena


def hunt_one(number: int) -> Caught:
    """Hunt one mutant."""
    return mutants.hunt(MUTANTS[number], place())


@dataclass(frozen=True, slots=True)
class Fast:
    """A unit of the fast driver."""

    unit: Unit

    def __call__(self) -> Total:
        return _added(self.unit.run(place().play))


@dataclass(frozen=True, slots=True)
class Slow:
    """Some scenarios of the slow driver."""

    scenarios: tuple[Scenario, ...]

    def __call__(self) -> Total:
        return _added(real.play(arena(), scenario) for scenario in self.scenarios)


@dataclass(frozen=True, slots=True)
class Frozen:
    """Some zombies."""

    zombies: tuple[Zombie, ...]

    def __call__(self) -> Total:
        woken = [zombies.play(arena(), zombie) for zombie in self.zombies]
        total = _added(one.outcome for one in woken)
        total.woken = woken
        return total


def _added(outcomes: Iterable[Outcome]) -> Total:
    total = Total()
    for outcome in outcomes:
        total.add(outcome)
    return total


def fast(units: Iterable[Unit]) -> list[Task]:
    """The tasks of the fast driver."""
    return [Fast(unit) for unit in units]


def slow() -> list[Task]:
    """The tasks of the slow driver."""
    every = list(real.scenarios())
    return [Slow(tuple(every[at : at + _CHUNK])) for at in range(0, len(every), _CHUNK)]


def frozen() -> list[Task]:
    """The zombies."""
    every = list(zombies.zombies())
    return [Frozen(tuple(every[at : at + _CHUNK])) for at in range(0, len(every), _CHUNK)]
