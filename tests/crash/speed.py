"""How long recovery takes, with real workers and a standby, by the clocks of ledger and journal."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from tallystick import Protection
from tests.crash.actions import COMMIT, arm
from tests.crash.arena import EFFECT_SECONDS, Arena
from tests.crash.real import NAME
from tests.crash.scenario import Scenario
from tests.server.conftest import eventually

RUNS = 10

_KILL, _STOP = int(signal.SIGKILL), int(signal.SIGSTOP)
_PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Speed:
    """What was done to whom, and how long it took until the action was settled by evidence."""

    what: str
    runs: int
    median: float
    longest: float
    floor: float
    """What must pass in any case: the lease or the deadline, in seconds."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing to be measured."""

    what: str
    lease: float
    floor: float
    strike: Callable[[Arena], None]
    """Arms the target."""
    point: str = "after_set"
    standby: bool = True
    away: float | None = None
    """The server is killed and stays away so long; it counts from when it answers again."""


def _arms(point: str, *signals: tuple[int | str, int]) -> Callable[[Arena], None]:
    return lambda arena: arm(arena.folder, point, *signals)


def _arms_server(arena: Arena) -> None:
    assert arena.server.process is not None
    arm(arena.folder, "after_set", (arena.server.process.pid, _KILL))


_KILL_BOTH = _arms("after_set", ("parent", _KILL), ("self", _KILL))
_STOP_BOTH = _arms("after_set", ("parent", _STOP), ("self", _STOP))

TROUBLES = (
    Trouble("work-horse killed", 15, 0, _arms("after_set", ("self", _KILL)), standby=False),
    Trouble("worker killed, lease 2 s", 2, 2, _KILL_BOTH),
    Trouble("worker killed, lease 15 s", 15, 15, _KILL_BOTH),
    Trouble("worker frozen, lease 2 s", 2, 2, _STOP_BOTH),
    Trouble(
        f"work-horse frozen in an effect, deadline {EFFECT_SECONDS:g} s",
        2,
        EFFECT_SECONDS,
        _arms("after_set", ("self", _STOP)),
        standby=False,
    ),
    Trouble("Redis killed, back at once", 15, 0, _arms_server, standby=False, away=0),
    Trouble("Redis killed, back after 5 s", 15, 0, _arms_server, standby=False, away=5),
)


def measured(trouble: Trouble, runs: int = RUNS) -> Speed:
    """Do it so often, each time with fresh victims."""
    with Arena.open(trouble.lease, EFFECT_SECONDS) as arena:
        seconds = list(_seconds(arena, trouble, runs))
    return Speed(trouble.what, runs, median(seconds), max(seconds), trouble.floor)


def _seconds(arena: Arena, trouble: Trouble, runs: int) -> Iterator[float]:
    for _ in range(runs):
        _have_workers(arena, 2 if trouble.standby else 1)
        scenario = Scenario(NAME, Protection.READABLE, COMMIT)
        id, item = arena.proposed(scenario)
        trouble.strike(arena)
        arena.approve(id)
        eventually(lambda: arena.target.ledger(item), "the effect")  # noqa: B023
        began = arena.target.ledger(item)[0].at
        if trouble.away is not None:
            began = _restarted(arena, trouble.away)
        eventually(lambda: arena.at_rest(id), "it is settled", seconds=_PATIENCE_SECONDS)  # noqa: B023
        yield max(0, _settled(arena, id) - began) / 1000
        arena.end_workers(stopped=True)


def _restarted(arena: Arena, away: float) -> int:
    """Start the killed server again after so long; when it answered, in milliseconds."""
    assert arena.server.process is not None
    arena.server.process.wait(10)
    again = time.monotonic() + away
    eventually(lambda: time.monotonic() >= again, "the pause is over")
    arena.ensure_server()
    return time.time_ns() // 1_000_000


def _have_workers(arena: Arena, wanted: int) -> None:
    alive = sum(worker.poll() is None for worker in arena.workers)
    for _ in range(wanted - alive):
        arena.start_worker()


def _settled(arena: Arena, id: str) -> int:
    """When the last line of its journal was written, in milliseconds."""
    return arena.tally.store.load(id).at
