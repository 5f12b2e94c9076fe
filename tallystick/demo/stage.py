"""The stage: a private server, real worker processes, real targets, and all of it gone at the end.

Nothing of the user's own is touched: the environment is set anew for the demo, with its own data
folder and without a Redis URL, and put back.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from tallystick import Tallystick, TallystickError
from tallystick.core.errors import StoreError
from tallystick.demo import accidents
from tallystick.demo.targets import Targets

LEASE_SECONDS = 2
"""Short, so that the audience sees what happens to a dead worker's action."""

_PATIENCE_SECONDS = 20.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.02

Found = TypeVar("Found")


class NeverHappened(TallystickError):
    """{what} did not happen within {seconds:g} s."""


def until(
    condition: Callable[[], Found | None], what: str, *, seconds: float = _PATIENCE_SECONDS
) -> Found:
    """What `condition` returns as soon as it is true. Raises `NeverHappened`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise NeverHappened(what=what, seconds=seconds)
        time.sleep(_POLL_SECONDS)
    return found


@dataclass(frozen=True, slots=True)
class Process:
    """A process that the demo started, and what it logs."""

    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def started(self) -> list[str]:
        """For a worker: the process ids of the work-horses that it has started, in order."""
        return re.findall(r"work-horse (\d+) started", self.log.read_text())

    def stop(self) -> None:
        """Ask it to end; kill it if it does not."""
        if self.alive:
            self.popen.terminate()
        try:
            self.popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.popen.kill()
        self.popen.wait()


@dataclass
class Stage:
    """What a story plays with."""

    folder: Path
    targets: Targets
    tally: Tallystick
    workers: list[Process] = field(default_factory=list)
    """Those that should be alive."""
    _all_workers: list[Process] = field(default_factory=list)

    # --- processes ---------------------------------------------------------------------------

    def start(self, name: str, *command: str) -> Process:
        """Start a process of its own session (Ctrl-C is ours to hear), logging to a file."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return Process(popen, log)

    def staff(self, count: int = 2) -> None:
        """Have so many workers: replace the dead. Returns before they are ready."""
        self.workers = [worker for worker in self.workers if worker.alive]
        while len(self.workers) < count:
            name = f"worker-{len(self._all_workers) + 1}"
            worker = self.start(name, "tallystick", "worker")
            self.workers.append(worker)
            self._all_workers.append(worker)

    def ready(self) -> None:
        """Wait until every worker takes work."""
        self.staff()
        for worker in self.workers:
            until(worker.started, "a worker's start")

    def fallen(self) -> Process:
        """Wait for a worker that dies by SIGKILL, and return it."""

        def dead() -> Process | None:
            codes = {worker.popen.poll(): worker for worker in self.workers}
            return codes.get(-signal.SIGKILL)

        return until(dead, "the death of a worker")

    def server_pid(self) -> int:
        """The process of the embedded server."""
        return int(self._server_pid_file.read_text())

    @property
    def _server_pid_file(self) -> Path:
        return self.folder / "data" / "server" / "server.pid"

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

    def kill_everything(self) -> None:
        """SIGKILL all workers with their work-horses, and the embedded server."""
        for pid in self._work_horses():
            os.kill(pid, signal.SIGKILL)
        for worker in self.workers:
            worker.kill()
        os.kill(self.server_pid(), signal.SIGKILL)
        until(lambda: not self._server_answers(), "the death of the server")

    def start_again(self) -> None:
        """A new server on the same files, and new workers."""
        before, self.tally = self.tally, Tallystick.from_settings()
        before.close()
        self.staff()

    def close(self) -> None:
        """Stop everything, the server last."""
        for worker in self.workers:
            if worker.alive:
                worker.popen.terminate()
        for worker in self.workers:
            worker.stop()
        self.tally.close()
        self._end_server()

    def _end_server(self) -> None:
        """The server has ended with its last user, unless a dying work-horse was that."""
        with contextlib.suppress(OSError, ValueError, NeverHappened):
            os.kill(self.server_pid(), signal.SIGTERM)
            until(lambda: not self._server_pid_file.exists(), "its end", seconds=_STOP_SECONDS)

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
        """Wait until a worker has given this alert to its channel, the log; its facts."""

        def given() -> dict[str, Any] | None:
            for worker in self._all_workers:
                for line in worker.log.read_text().splitlines():
                    _, mark, text = line.partition(" ALERT ")
                    facts = json.loads(text) if mark else {}
                    if facts.get("id") == id and facts.get("reason") == reason:
                        return dict(facts)
            return None

        return until(given, f"the alert {reason!r} of action {id}")

    def command(self, *arguments: str) -> str:
        """Run a `tallystick` command as a user does; what it printed. Raises `NeverHappened`."""
        done = subprocess.run(
            [sys.executable, "-m", "tallystick", *arguments],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
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
    with contextlib.ExitStack() as stack:
        stack.enter_context(_stoppable())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tallystick-demo-")))
        targets = Targets(folder / "targets")
        stack.enter_context(_environment(folder))
        targets.create()
        stage = Stage(folder, targets, Tallystick.from_settings())
        stack.callback(stage.close)
        serving = stage.start("service", "tallystick.demo.service", str(targets.folder), *service)
        stack.callback(serving.stop)
        stage.staff(workers)
        until((targets.folder / "service.url").exists, "the start of the HTTP service")
        yield stage


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


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the demo like Ctrl-C does: with everything cleaned up."""

    def stop(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
