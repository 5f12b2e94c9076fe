"""One outage: workers busy with actions of every kind, a store that fails, and what came of it.

`tests/server/test_trouble.py` plays short ones, `python -m tests.trouble` long ones.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.server import actions
from tests.server.conftest import Server, Site, command, eventually
from tests.server.link import Link

KINDS = ("readable", "keyed", "versioned", "fenced", "blind", "slow")
_TICKS_PER_SECOND = 100


@dataclass
class Outage:
    """What is watched of one outage."""

    site: Site
    parents: int
    processes: int
    actions: dict[str, str] = field(default_factory=dict)
    """The id of each action, by the item that it sets."""
    lines: list[int] = field(default_factory=list)
    """How many lines each worker logged between the begin of the trouble and the end of all, but
    for those that tell of a move."""
    cpu: float = 0.0
    """Seconds of CPU that all workers used while the store was away."""
    settled: float = 0.0
    """Seconds from the end of the trouble until every action was at rest."""
    states: Counter[str] = field(default_factory=Counter)
    effects: Counter[int] = field(default_factory=Counter)
    """How many items the target changed once, twice, and so on, by its own ledger."""
    attempts: Counter[int] = field(default_factory=Counter)
    dead: dict[str, int] = field(default_factory=dict)
    """The work-horses that died, as they were counted."""

    def play(self, begin: Callable[[], object], seconds: float, end: Callable[[], object]) -> None:
        """Start the workers, give them work, let the trouble begin while they are at it, end it
        after so many seconds, and wait until everything is at rest."""
        for _ in range(self.parents):
            self.site.worker("--processes", str(self.processes))
        for number in range(self.parents):
            up = f"worker {number} is up"
            eventually(lambda n=number: self._started(n) == self.processes, up, seconds=60)  # type: ignore[misc]
        (self.site.folder / "slow").touch()  # some are caught inside their effect
        for number in range(self.parents * self.processes * 3):
            kind = KINDS[number % len(KINDS)]
            item = f"{kind}-{number}"
            self.actions[item] = self.site.approved(f"item.{kind}", item)
        before, used = [len(log) for log in self._logs()], self._cpu()
        begin()
        (self.site.folder / "slow").unlink()
        time.sleep(seconds)  # the trouble is this long; there is nothing to wait for
        self.cpu = self._cpu() - used
        end()
        ended = time.monotonic()
        for id in self.actions.values():
            self.site.at_rest(id, seconds=90)
        self.settled = time.monotonic() - ended
        self.lines = [len(log) - n for log, n in zip(self._logs(), before, strict=True)]

        found = [self.site.tally.get(id) for id in self.actions.values()]
        self.states = Counter(str(action.state) for action in found)
        self.attempts = Counter(action.attempts for action in found)
        counted = self.site.tally.store.snapshot().counters
        self.dead = {name: n for name, n in counted.items() if name.startswith("workhorse_exits")}
        self.effects = Counter(actions.effects(item) for item in self.actions)

    def without_intent(self) -> list[str]:
        """The items that were changed although no intent is stored."""
        return [
            item
            for item, id in self.actions.items()
            if actions.effects(item) and "intent" not in self.site.events(id)
        ]

    def _started(self, number: int) -> int:
        return self.site.log(number).count("started")

    def _logs(self) -> list[list[str]]:
        return [
            [line for line in self.site.log(n).splitlines() if '"tallystick.moves"' not in line]
            for n in range(self.parents)
        ]

    def _cpu(self) -> float:
        """Seconds of CPU of the workers and their work-horses, dead ones included."""
        parents = {process.pid for process in self.site.workers}
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                told = stat.read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(stat.parent.name) in parents:
                total += sum(map(int, told[11:15]))
            elif int(told[1]) in parents:
                total += sum(map(int, told[11:13]))
        return total / _TICKS_PER_SECOND


@dataclass(frozen=True)
class Trouble:
    """How a server fails, and how that ends."""

    begin: Callable[[Server], object]
    end: Callable[[Server], object]


def _stopped(number: int) -> Callable[[Server], None]:
    def send(server: Server) -> None:
        assert server.process is not None
        server.process.send_signal(number)

    return send


def _option(name: str, value: str) -> Callable[[Server], object]:
    return lambda server: command(server, "CONFIG", "SET", name, value)


AWAY = {
    "killed": Trouble(lambda server: server.stop(), lambda server: server.start()),
    "hanging": Trouble(_stopped(signal.SIGSTOP), _stopped(signal.SIGCONT)),
}
"""It does not answer."""

UNWILLING = {
    "a replica": Trouble(
        lambda server: command(server, "REPLICAOF", "127.0.0.1", "1"),
        lambda server: command(server, "REPLICAOF", "NO", "ONE"),
    ),
    "full": Trouble(_option("maxmemory", "1"), _option("maxmemory", "0")),
    "without its replicas": Trouble(
        _option("min-replicas-to-write", "1"), _option("min-replicas-to-write", "0")
    ),
}
"""It answers, and takes no writes."""


@contextmanager
def linked(site: Site) -> Iterator[Link]:
    """Have the workers reach the server through a link."""
    front = f"{site.folder}/link.sock"
    link = Link(front, site.server.url.removeprefix("unix://"))
    site.worker_url = f"unix://{front}"
    try:
        yield link
    finally:
        link.close()
