"""Processes of the demo: started so that none is lost, and waited for by looking."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tallystick import TallystickError

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

    @classmethod
    def start(cls, log: Path, *command: str) -> "Process":
        """Start a Python module in a session of its own: Ctrl-C is the demo's to hear."""
        with log.open("wb") as out:
            popen = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return cls(popen, log)

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
        """Ask it to end, and wait; kill it if it does not."""
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


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until what is started here is in the hands of who cleans it up."""
    if threading.current_thread() is not threading.main_thread():  # which alone hears signals
        yield
        return
    heard: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda one, _: heard.append(one)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first in heard[:1]:
            signal.raise_signal(first)
