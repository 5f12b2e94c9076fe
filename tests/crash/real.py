"""The slow driver: real `tallystick worker` processes, struck by real SIGKILL.

Moments are those of the wake-up as the server sees it, RQ's own bookkeeping included: 2 n - 1 is
before the n-th command of the work-horse, 2 n after it.
"""

import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

from tallystick import Protection
from tests.crash.actions import COMMIT, COMPENSATED, IN_BAND, arm
from tests.crash.arena import Arena
from tests.crash.processes import signal_all
from tests.crash.proxy import Cut
from tests.crash.scenario import Outcome, Scenario, Strike, Victim
from tests.crash.target import SET, UNDO
from tests.server.conftest import eventually

NAME = "real processes"

_PATIENCE_SECONDS = 30
_AWAY = 8
"""An outage lasts until so many connections were refused."""


def play(arena: Arena, scenario: Scenario) -> Outcome:
    """Play one scenario to rest, and have it judged."""
    arena.ensure_worker()
    eventually(arena.idle, "a work-horse is idle")
    id, item = arena.proposed(scenario)
    files = [_arm_target(arena, one) for one in scenario.strikes if isinstance(one.moment, str)]
    cuts = [_cut(arena, one) for one in scenario.strikes if isinstance(one.moment, int)]
    arena.proxy.arm(id, cuts)
    arena.approve(id)
    _to_rest(arena, id)
    arena.proxy.disarm()
    struck = list(arena.proxy.struck)
    for point in files:
        if not (arena.folder / f"arm-{point}").exists():
            struck.append(point.replace("_", " "))
        (arena.folder / f"arm-{point}").unlink(missing_ok=True)
    return arena.judged(id, item, scenario, struck)


def _to_rest(arena: Arena, id: str) -> None:
    """Keep a server and a worker going until the action is at rest, or patience ends; and then
    until what else was begun is over."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        arena.ensure_server()
        with suppress(AssertionError):  # it was struck again before it was up
            arena.ensure_worker()
        if arena.at_rest(id) and arena.idle():
            return
        time.sleep(0.005)


def _arm_target(arena: Arena, strike: Strike) -> str:
    assert arena.server.process is not None
    kill = int(signal.SIGKILL)
    signals: dict[Victim, list[tuple[int | str, int]]] = {
        Victim.HORSE: [("self", kill)],
        Victim.PARENT: [("parent", kill)],
        Victim.BOTH: [("parent", kill), ("self", kill)],
        Victim.REDIS: [(arena.server.process.pid, kill)],
    }
    arm(arena.folder, str(strike.moment), *signals[strike.victim])
    return str(strike.moment)


def _cut(arena: Arena, strike: Strike) -> Cut:
    at, odd = divmod(int(strike.moment) + 1, 2)

    def hit(pid: int) -> None:
        parent = arena.workers[-1].pid
        match strike.victim:
            case Victim.HORSE:
                signal_all(signal.SIGKILL, pid)
            case Victim.PARENT:
                signal_all(signal.SIGKILL, parent)
            case Victim.BOTH:
                signal_all(signal.SIGKILL, pid, parent)
            case Victim.REDIS:
                arena.kill_server()
            case Victim.OUTAGE:
                enough = arena.proxy.refused + _AWAY
                arena.kill_server(lambda: arena.proxy.refused >= enough)

    return Cut(at, bool(odd), hit, parent=strike.of_parent)


def scenarios() -> Iterator[Scenario]:
    """Every command of a wake-up, the target's points, rollbacks, and second blows; protections
    take turns where not each is tried."""
    turns = itertools.cycle(Protection)
    stride = {Victim.HORSE: 1, Victim.BOTH: 2, Victim.REDIS: 2, Victim.CONNECTION: 2}
    for victim, step in (stride | {Victim.PARENT: 3, Victim.OUTAGE: 7}).items():
        for moment in range(1, 49, step):
            yield Scenario(NAME, next(turns), COMMIT, (Strike(moment, victim),))
    for protection in Protection:
        for when in ("before", "inside", "after"):
            for victim in (Victim.HORSE, Victim.BOTH):
                yield Scenario(NAME, protection, COMMIT, (Strike(f"{when}_{SET}", victim),))
        for when in ("before", "after"):
            yield Scenario(NAME, protection, COMMIT, (Strike(f"{when}_{SET}", Victim.REDIS),))
            for path in (IN_BAND, COMPENSATED):
                yield Scenario(NAME, protection, path, (Strike(f"{when}_{SET}", Victim.PARENT),))
            yield Scenario(NAME, protection, IN_BAND, (Strike(f"{when}_{UNDO}", Victim.HORSE),))
    for moment in range(13, 34):
        victim = Victim.BOTH if moment % 3 == 0 else Victim.HORSE
        yield Scenario(NAME, next(turns), IN_BAND, (Strike(moment, victim),))
    for moment in range(19, 180, 6):
        victim = Victim.BOTH if moment % 4 == 1 else Victim.HORSE
        yield Scenario(NAME, next(turns), COMPENSATED, (Strike(moment, victim),))
    yield from _second_blows(turns)


def _second_blows(turns: Iterator[Protection]) -> Iterator[Scenario]:
    fresh, same = (14, 16, 15, 13, 17), (3, 4, 2, 1, 6)
    pairs = {
        (Victim.HORSE, Victim.HORSE): fresh,
        (Victim.HORSE, Victim.REDIS): fresh,
        (Victim.BOTH, Victim.HORSE): fresh,
        (Victim.REDIS, Victim.HORSE): same,
        (Victim.CONNECTION, Victim.BOTH): same,
    }
    for (first, second), moments in pairs.items():
        for one, other in zip((15, 17, 18, 20, 21), moments, strict=True):
            strikes = (Strike(one, first), Strike(other, second))
            yield Scenario(NAME, next(turns), COMMIT, strikes)
    for moment in range(1, 15):  # while the parent buries its work-horse
        strikes = (Strike(20, Victim.HORSE), Strike(moment, Victim.PARENT, of_parent=True))
        yield Scenario(NAME, next(turns), COMMIT, strikes)
