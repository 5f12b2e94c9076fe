"""Real workers, for the slow driver: a private server, a proxy before it, a target, and
`tallystick worker` processes that come and go."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tallystick import Protection, Settings, Tallystick
from tallystick.core.errors import StoreError
from tallystick.jobs.connection import connect
from tallystick.jobs.registry import Registry
from tallystick.jobs.states import AT_REST
from tests.crash import actions
from tests.crash.checker import Books, Case, judge
from tests.crash.inprocess import memory
from tests.crash.processes import STOPPED, children, signal_all, status
from tests.crash.proxy import Proxy
from tests.crash.scenario import Outcome, Scenario
from tests.crash.target import Target
from tests.crash.wiretap import script_names
from tests.server.conftest import Server, eventually

LEASE_SECONDS, EFFECT_SECONDS = 1.5, 0.8
_POP = "BLMOVE"
"""What an idle work-horse waits in."""


class Arena:
    """One server, its proxy, a target and at most one worker under attack."""

    def __init__(self, folder: Path, lease: float, effect: float) -> None:
        self.folder = folder
        self.server = Server(folder)
        self.target = Target(folder)
        self.settings = Settings.load(
            redis_url=self.server.url,
            data_dir=folder / "data",
            actions=(),
            lease_seconds=lease,
            effect_deadline_seconds=effect,
        )
        self.workers: list[subprocess.Popen[bytes]] = []
        self._items = 0
        self._one_at_a_time = threading.Lock()

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, lease: float = LEASE_SECONDS, effect: float = EFFECT_SECONDS
    ) -> Iterator["Arena"]:
        with tempfile.TemporaryDirectory(dir=memory(), prefix="crash-") as folder:
            arena = cls(Path(folder), lease, effect)
            arena.server.start()
            arena.target.create()
            try:
                with arena._opened():
                    yield arena
            finally:
                arena.end_workers()
                arena.server.stop()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        self.client = connect(self.server.url, timeout=5, retries=True, decode=True)
        self.tally = Tallystick.from_settings(self.settings)
        kinds = [kind for one in Protection for kind in actions.types(self.target, one)]
        self.tally.registry = Registry(kinds)
        scripts = script_names(self.tally.store)
        self.proxy = Proxy(self.folder / "proxy.sock", self.folder / "redis.sock", scripts)
        try:
            yield
        finally:
            self.proxy.close()
            self.tally.close()
            self.client.close()

    # --- the server ------------------------------------------------------------------------------

    def kill_server(self, until: Callable[[], object] = lambda: True) -> None:
        """Kill -9, and start again once this is so."""
        with self._one_at_a_time:
            self.server.stop()
            eventually(until, "the time to start the server again comes")
            self.server.start()

    def ensure_server(self) -> None:
        """Start it again if the target killed it."""
        with self._one_at_a_time:
            if self.server.process is None or self.server.process.poll() is not None:
                self.server.stop()
                self.server.start()

    # --- workers ---------------------------------------------------------------------------------

    def start_worker(self) -> subprocess.Popen[bytes]:
        """A fresh worker; it is returned once its work-horse waits for a job."""
        env = os.environ | {
            "TALLYSTICK_REDIS_URL": f"unix://{self.proxy.front}",
            "TALLYSTICK_DATA_DIR": str(self.folder / "data"),
            "TALLYSTICK_ACTIONS": actions.MODULE,
            "TALLYSTICK_LEASE_SECONDS": str(self.settings.lease_seconds),
            "TALLYSTICK_EFFECT_DEADLINE_SECONDS": str(self.settings.effect_deadline),
            "TARGET_DIR": str(self.folder),
        }
        command = [sys.executable, "-m", "tallystick", "worker"]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        self.workers.append(worker)
        self.proxy.parents.add(worker.pid)

        def up() -> bool:
            return worker.poll() is not None or any(map(self.idle_horse, children(worker.pid)))

        eventually(up, "the work-horse is up")
        return worker

    def ensure_worker(self) -> subprocess.Popen[bytes]:
        """The worker, if it lives; else a fresh one."""
        if not self.workers or self.workers[-1].poll() is not None:
            return self.start_worker()
        return self.workers[-1]

    def idle(self) -> bool:
        """Whether a work-horse waits for a job."""
        return any(self.idle_horse(pid) for pid in self.proxy.horses())

    def idle_horse(self, pid: int) -> bool:
        """Whether this work-horse waits for a job."""
        return self.proxy.last.get(pid) == _POP

    def end_workers(self, *, stopped: bool = False) -> None:
        """Kill every worker (or every stopped one); their work-horses die with them."""
        for worker in self.workers:
            if not stopped or status(worker.pid) in STOPPED:
                signal_all(signal.SIGKILL, worker.pid)
                worker.wait(10)

    def log(self) -> str:
        """What all workers have logged."""
        return "\n".join(
            file.read_text(errors="replace") for file in sorted(self.folder.glob("worker-*.log"))
        )

    # --- actions ---------------------------------------------------------------------------------

    def proposed(self, scenario: Scenario) -> tuple[str, str]:
        """A new item, and an action on it that waits for approval: (id, item)."""
        self._items += 1
        item = f"item-{self._items}"
        self.target.add(item)
        name, params = f"{scenario.path}.{scenario.protection}", {"item": item, "value": "new"}
        return self.tally.propose(name, params, key=item, by="producer").id, item

    def approve(self, id: str) -> None:
        self.tally.approve(id, by="approver")

    def state(self, id: str) -> str:
        """Where it is; empty while the server does not answer."""
        with contextlib.suppress(StoreError):
            return str(self.tally.get(id).state)
        return ""

    def at_rest(self, id: str) -> bool:
        return self.state(id) in AT_REST

    def judged(
        self, id: str, item: str, scenario: Scenario, struck: list[str], *, survivor: bool = False
    ) -> Outcome:
        """What the outside checker says of it."""
        trusted = frozenset(self.tally.keyring.trusted.items())
        case = Case(self.settings.namespace, id, item, scenario, trusted, survivor, self.told())
        state, effects, journal, found = judge(Books(self.folder / "target.db", self.client), case)
        return Outcome(scenario, tuple(struck), state, effects, tuple(found), tuple(journal), id)

    def told(self) -> tuple[str, ...]:
        """Alerts that were logged, or still lie in the outbox; first the outbox is read, so that
        one that is delivered meanwhile is seen twice, not never."""
        waiting: Any = self.client.lrange(self.tally.store.keys.outbox, 0, -1)
        logged = [json.loads(line) for line in self.log().splitlines() if '"ALERT ' in line]
        told = [json.dumps({"id": line["action_id"], "seq": line["seq"]}) for line in logged]
        return (*waiting, *told)
