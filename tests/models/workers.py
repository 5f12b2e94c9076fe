"""Workers that stop at every step: each runs the real Runner in a thread of its own, and goes on
only when it is told to. Only one thread ever runs, so a run is as repeatable as its decisions.
"""

import threading
from collections.abc import Sequence
from typing import Any

from tallystick.core.errors import StoreTrouble, StoreUnavailable
from tallystick.jobs.run import Runner
from tallystick.jobs.store import Store
from tallystick.testing import Bench, Crash

_SECONDS = 30
"""Longer than any step; a worker that does not come to its next gate hangs."""


class GatedStore(Store):
    """A store whose user may be frozen or killed before each script, and after it ran."""

    worker: "SimWorker"

    def _script(
        self, name: str, keys: Sequence[str], args: Sequence[Any], *, settled: bool = False
    ) -> Any:
        self.worker.gate(f"before {name}")
        if self.worker.is_failed == "before":
            self._fail()
        reply = super()._script(name, keys, args, settled=settled)
        if self.worker.loses_a_reply:
            self.worker.loses_a_reply = False
            self.worker.gate(f"between {name} and its repetition")
            reply = super()._script(name, keys, args, settled=settled)
        self.worker.gate(f"after {name}")
        if self.worker.is_failed == "after":
            self._fail()
        return reply

    def _fail(self) -> None:
        self.worker.is_failed = ""
        raise StoreUnavailable(url="fakeredis", problem="it was to fail")


class SimWorker(threading.Thread):
    """One worker, one wake-up. It begins frozen."""

    def __init__(self, bench: Bench, id: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.id = id
        self.at = "start"
        self.over = False
        self.loses_a_reply = False
        """The reply to the next script is lost, so that it is sent again."""
        self.is_failed = ""
        """The store fails the next script for good, "before" or "after" it ran."""
        self._killed = False
        self._problem: BaseException | None = None
        self._go, self._here = threading.Semaphore(0), threading.Semaphore(0)
        client: Any = bench.redis
        store = GatedStore(client, bench.settings.namespace, url="fakeredis")
        store.worker = self
        self._runner = Runner(
            store,
            bench.tally.registry,
            bench.tally.keyring,
            bench.settings,
            worker=name,
            checkpoint=self.gate,
            sleep=lambda seconds: self.gate("asleep"),
        )
        self.start()
        self._wait()

    def gate(self, point: str) -> None:
        """In the worker's thread: be frozen here until told to go on, or to die."""
        self.at = point
        self._here.release()
        self._go.acquire()
        if self._killed:
            raise Crash(point)

    def step(self, times: int = 1) -> None:
        """Let it go on to its next gate, so many times, or to its end. Raises what it raised."""
        for _ in range(times):
            if self.over:
                return
            self._go.release()
            self._wait()

    def finish(self) -> None:
        """Let it go on to its end."""
        while not self.over:
            self.step()

    def kill(self) -> None:
        """It dies where it is frozen."""
        self._killed = True
        self.finish()

    def run(self) -> None:
        try:
            self.gate("start")
            self._runner.run(self.id)
        except (Crash, StoreTrouble):  # who is failed at its first steps leaves it to the next
            pass
        except BaseException as problem:  # for the main thread to raise
            self._problem = problem
        self.over = True
        self._here.release()

    def _wait(self) -> None:
        if not self._here.acquire(timeout=_SECONDS):
            raise AssertionError(f"{self.name} hangs after {self.at!r}")
        if self._problem:
            problem, self._problem = self._problem, None
            raise problem
