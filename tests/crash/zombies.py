"""Zombies: a real worker is stopped at a point (SIGSTOP), its lease runs out, another worker
decides, and the first goes on (SIGCONT).

Parent and work-horse are stopped together, as on a frozen host, and only the work-horse goes on:
the parent would kill it. What stops it then is the target's protection, the guard of every move,
and, within an effect, the kernel's timer (ITIMER_REAL with the default action of SIGALRM), which
ends it at its first instruction.
"""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tallystick import Protection
from tests.crash.actions import COMMIT, IN_BAND, arm
from tests.crash.arena import Arena
from tests.crash.processes import GONE, STOPPED, children, ended_by, signal_all, status
from tests.crash.proxy import Cut
from tests.crash.real import NAME
from tests.crash.scenario import Outcome, Scenario, Strike, Victim
from tests.crash.target import FENCE, SET, UNDO
from tests.server.conftest import eventually

_PATIENCE_SECONDS = 40


@dataclass(frozen=True, slots=True)
class Zombie:
    """Who is to be stopped, and where: at a point of the target (`before_set`), or before or after
    a command (`before intent`, by what it journals)."""

    protection: Protection
    path: str
    point: str
    alone: bool = False
    """Its parent is not stopped, and kills it at the deadline of the effect, or as one that hangs;
    nobody wakes it."""

    @property
    def scenario(self) -> Scenario:
        strike = Strike(self.point, Victim.FROZEN)
        return Scenario(NAME, self.protection, self.path, (strike,))


@dataclass(frozen=True, slots=True)
class Woken:
    """What became of it."""

    zombie: Zombie
    decided: str
    """Where the second worker left the action."""
    ended_by: str
    """The signal that ended it; empty if it went on and came to an end by itself."""
    late: int
    """Lines of late evidence."""
    outcome: Outcome


def play(arena: Arena, zombie: Zombie) -> Woken:
    """Stop, have another decide, go on, and judge."""
    first = arena.ensure_worker()
    eventually(arena.idle, "the first worker is idle")
    (horse,) = children(first.pid)
    id, item = arena.proposed(zombie.scenario)
    _arm(arena, id, zombie, [horse] if zombie.alone else [first.pid, horse])
    arena.approve(id)
    eventually(
        lambda: status(horse) in STOPPED + GONE or (arena.at_rest(id) and arena.idle_horse(horse)),
        f"it is stopped at {zombie.point}",
    )
    stopped = status(horse) in STOPPED
    decided, signalled = "", ""
    if stopped and not zombie.alone:
        arena.start_worker()
    if stopped:
        eventually(lambda: arena.at_rest(id), "another worker decides", seconds=_PATIENCE_SECONDS)
        decided = arena.state(id)
        signalled = _killed(arena, horse) if zombie.alone else _woken(arena, horse)
    arena.proxy.disarm()
    arena.proxy.go_on.set()
    arena.end_workers(stopped=True)
    (arena.folder / f"arm-{zombie.point}").unlink(missing_ok=True)
    survivor = stopped and not signalled
    struck = [zombie.point] if stopped else []
    outcome = arena.judged(id, item, zombie.scenario, struck, survivor=survivor)
    late = sum("late_evidence" in line for line in outcome.journal)
    return Woken(zombie, decided, signalled, late, outcome)


def _arm(arena: Arena, id: str, zombie: Zombie, pids: list[int]) -> None:
    """Have these processes stopped at the point, the work-horse last."""
    if "_" in zombie.point:
        arm(arena.folder, zombie.point, *[(pid, int(signal.SIGSTOP)) for pid in pids])
        arena.proxy.arm(id, [])
        return
    when, _, label = zombie.point.partition(" ")
    cut = Cut(label, when == "after", lambda pid: signal_all(signal.SIGSTOP, *pids), hold=True)
    arena.proxy.arm(id, [cut])


def _woken(arena: Arena, horse: int) -> str:
    """The work-horse goes on, its parent does not; the signal that ended it, if one did."""
    arena.proxy.last.pop(horse, None)
    signal_all(signal.SIGCONT, horse)
    arena.proxy.go_on.set()
    eventually(lambda: _over(arena, horse), "the zombie comes to an end")
    return ended_by(horse)


def _killed(arena: Arena, horse: int) -> str:
    """Its parent killed it."""
    assert f"work-horse {horse} overruns" in arena.log()
    return "SIGKILL"


def _over(arena: Arena, horse: int) -> bool:
    return status(horse) in GONE or arena.idle_horse(horse)


def zombies(protections: Sequence[Protection] = tuple(Protection)) -> Iterator[Zombie]:
    """Every point of a run that is worth stopping at."""
    forward = ["before read", "before claimed", "after claimed", "before intent", "after intent"]
    forward += [f"before_{SET}", f"after_{SET}", "before replied", "after replied"]
    forward += ["before verified", "after verified"]
    fence = [f"before_{FENCE}", f"after_{FENCE}", "before renew", "after renew"]
    back = ["before undo", f"before_{UNDO}", f"after_{UNDO}", "before undone"]
    for protection in protections:
        fenced = fence if protection is Protection.FENCED else []
        for point in forward + fenced:
            yield Zombie(protection, COMMIT, point)
        for point in back:
            yield Zombie(protection, IN_BAND, point)
        yield Zombie(protection, COMMIT, f"before_{SET}", alone=True)
    yield Zombie(Protection.READABLE, COMMIT, "before intent", alone=True)
