"""The stage: a private server, real worker processes, real targets, and all of it gone at the end.

Nothing of the user's own is touched: the environment is set anew for the demo, with its own data
folder and without a Redis URL, and put back.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick import Tallystick
from tallystick.core.errors import StoreError
from tallystick.core.interrupts import stoppable
from tallystick.demo import accidents
from tallystick.demo.processes import NeverHappened, Process, undisturbed, until
from tallystick.demo.targets import Targets

LEASE_SECONDS = 2
"""Short, so that the audience sees what happens to a dead worker's action."""

_COMMAND_SECONDS = 20.0
_STOP_SECONDS = 5.0


@dataclass
class Stage:
    """What a story plays with."""

    folder: Path
    targets: Targets
    tally: Tallystick
    workers: list[Process] = field(default_factory=list)
    """Those that should be alive."""
    _started: list[Process] = field(default_factory=list)
    """Every process that was ever started, oldest first."""

    # --- processes ---------------------------------------------------------------------------

    def start(self, name: str, *command: str) -> Process:
        """Start a Python module as a process that ends with the stage."""
        with undisturbed():
            log = self.folder / f"{len(self._started)}-{name}.log"
            process = Process.start(log, *command)
            self._started.append(process)
        return process

    def staff(self, count: int = 2) -> None:
        """Have so many workers: replace the dead. Returns before they are ready."""
        self.workers = [worker for worker in self.workers if worker.alive]
        while len(self.workers) < count:
            self.workers.append(self.start("worker", "tallystick", "worker"))

    def ready(self) -> None:
        """Wait until every worker takes work."""
        self.staff()
        for worker in self.workers:
            until(worker.started, "the start of a worker")

    def fallen(self) -> Process:
        """Wait for a worker that dies by SIGKILL, and return it."""

        def dead() -> Process | None:
            codes = {worker.popen.poll(): worker for worker in self.workers}
            return codes.get(-signal.SIGKILL)

        return until(dead, "the death of a worker")

    def server_pid(self) -> int:
        """The process of the embedded server."""
        return int(_server_pid_file(self.folder).read_text())

    @contextlib.contextmanager
    def held_up(self) -> Iterator[None]:
        """Nobody takes work meanwhile: the work-horses are stopped."""
        self.ready()
        pids = self._work_horses()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def restart(self) -> tuple[set[int], set[int]]:
        """SIGKILL all workers and the server, then start others: the old and new process ids."""
        with undisturbed():
            before = {self.server_pid(), *(worker.pid for worker in self.workers)}
            for pid in [*before, *self._work_horses()]:
                with contextlib.suppress(ProcessLookupError):  # a work-horse dies with its worker
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not self._server_answers(), "the death of the server")
            until(lambda: not any(worker.alive for worker in self.workers), "that of the workers")
            closing, self.tally = self.tally, Tallystick.from_settings()
            closing.close()
            self.staff()
        return before, {self.server_pid(), *(worker.pid for worker in self.workers)}

    def close(self) -> None:
        """Stop everything, the server last."""
        for process in self._started:
            if process.alive:
                process.popen.terminate()
        for process in self._started:
            process.stop()
        self.tally.close()
        _end_server(self.folder)  # in case that a dying work-horse was its last user

    def _server_answers(self) -> bool:
        try:
            self.tally.store.ping()
        except StoreError:
            return False
        return True

    def _work_horses(self) -> list[int]:
        return [int(worker.started()[-1]) for worker in self.workers]

    def at_rest(self) -> bool:
        """Nothing is approved or under way, and no wake-up is left."""
        transport = self.tally.transport
        return not (self.tally.store.open_work() or (transport and transport.depth()))

    # --- what can be seen --------------------------------------------------------------------

    def alert(self, id: str, reason: str) -> dict[str, Any]:
        """Wait until a worker has given this alert to its channel, the log; that line's fields."""

        def given() -> dict[str, Any] | None:
            for process in self._started:
                for line in process.log.read_text().splitlines():
                    facts = json.loads(line) if '"tallystick.alerts"' in line else {}
                    if facts.get("action_id") == id and facts.get("reason") == reason:
                        return dict(facts)
            return None

        return until(given, f"the alert {reason!r} of action {id}")

    def command(self, *arguments: str) -> str:
        """Run a `tallystick` command as a user does; what it printed. Raises `NeverHappened`."""
        done = subprocess.run(
            [sys.executable, "-m", "tallystick", *arguments],
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise NeverHappened(
                what=f"tallystick {arguments[0]} ({done.stderr.strip()})", seconds=0
            )
        return done.stdout


@contextlib.contextmanager
def opened(*, workers: int = 2, service: tuple[str, ...] = ()) -> Iterator[Stage]:
    """A stage with everything running on it. `service` are options of the HTTP service."""
    with stoppable(), contextlib.ExitStack() as stack:
        with undisturbed():
            given = tempfile.TemporaryDirectory(prefix="tallystick-demo-")
            folder = Path(stack.enter_context(given))
            stack.enter_context(_environment(folder))
            targets = Targets(folder / "targets")
            targets.create()
            stage = Stage(folder, targets, Tallystick.from_settings())
            stack.callback(stage.close)
        stage.start("service", "tallystick.demo.service", str(targets.folder), *service)
        stage.staff(workers)
        until((targets.folder / "service.url").exists, "the start of the HTTP service")
        yield stage


def _server_pid_file(folder: Path) -> Path:
    return folder / "data" / "server" / "server.pid"


def _end_server(folder: Path) -> None:
    """End the embedded server, if there still is one, and wait until it is gone."""
    pid_file = _server_pid_file(folder)
    with contextlib.suppress(OSError, ValueError, NeverHappened):
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        until(lambda: not pid_file.exists(), "its end", seconds=_STOP_SECONDS)


@contextlib.contextmanager
def _environment(folder: Path) -> Iterator[None]:
    """The demo's settings and no others, for this process and those that it starts."""
    before = {name: value for name, value in os.environ.items() if name.startswith("TALLYSTICK_")}
    ours = {
        "TALLYSTICK_DATA_DIR": str(folder / "data"),
        "TALLYSTICK_NAMESPACE": "demo",
        "TALLYSTICK_ACTIONS": "tallystick.demo.actions",
        "TALLYSTICK_LEASE_SECONDS": str(LEASE_SECONDS),
        "TALLYSTICK_VERIFY_DEADLINE_SECONDS": "0.2",
        accidents.FOLDER: str(folder / "targets"),
    }
    _replace(before, ours)
    try:
        yield
    finally:
        _replace(ours, before)


def _replace(old: dict[str, str], new: dict[str, str]) -> None:
    for name in old:
        os.environ.pop(name, None)
    os.environ.update(new)
