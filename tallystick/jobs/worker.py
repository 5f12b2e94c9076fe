"""The work-horse: a long-lived child process that takes wake-ups and runs actions."""

import ctypes
import json
import logging
import os
import platform
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.approvals import Keyring
from tallystick.core.errors import StoreError, StoreTrouble
from tallystick.jobs.registry import Registry
from tallystick.jobs.run import Runner
from tallystick.jobs.settings import Settings
from tallystick.jobs.states import State
from tallystick.jobs.store import Store
from tallystick.jobs.transport import Transport, perform_with
from tallystick.jobs.witness import Witness
from tallystick.metrics import counters
from tallystick.telemetry import traces

log = logging.getLogger("tallystick.worker")

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Work:
    """What a work-horse needs, handed from its parent."""

    settings: Settings
    registry: Registry
    keyring: Keyring
    url: str
    max_jobs: int | None
    """After so many wake-ups it ends, and is replaced by a fresh one."""


class PipeWatch:
    """Tells the parent what this work-horse holds, and arms the kernel's timer for an effect.

    The timer has no handler, so it ends the process even where native code holds the interpreter,
    and at the first instruction of a process that was stopped past its deadline.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def look(self, action_id: str) -> None:
        self._tell(look=action_id)

    def hold(self, action_id: str, owner: str) -> None:
        self._tell(hold=action_id, owner=owner)

    def effect(self, seconds: float | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds or 0)
        self._tell(effect=seconds)

    def done(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._tell(done=True)

    def _tell(self, **message: Any) -> None:
        _write(self._pipe, message)


def tell_end(pipe: int, error: StoreError) -> None:
    """Tell the parent why the store ends this work-horse: the kind, the words, and whether it will
    pass. So many may have the same to say that only the parent says it."""
    told = [type(error).__name__, str(error), isinstance(error, StoreTrouble)]
    _write(pipe, {"ends": told})


def _write(pipe: int, message: dict[str, Any]) -> None:
    os.write(pipe, json.dumps(message).encode() + b"\n")


def run_work_horse(work: Work, pipe: int, parent: int) -> None:
    """Run this (freshly forked) process as a work-horse until it is told to stop."""
    die_with_parent(parent)
    os.setpgid(0, 0)  # Ctrl-C is the parent's to hear
    name = worker_name()
    store = Store.connect(
        work.url,
        work.settings.namespace,
        timeout=store_timeout(work.settings),
        replicas=work.settings.replicas,
    )
    transport = Transport.connect(work.url, work.settings, patient=True)
    run = runner(work, store, transport, name, PipeWatch(pipe))
    traces.set_up("tallystick-worker")
    perform_with(_told_of(run, name), refused=lambda why: count_refusal(store))
    try:
        transport.work(name=name, burst=False, max_jobs=work.max_jobs)
    finally:
        traces.flush()


def _told_of(run: Callable[[str], State | None], worker: str) -> Callable[[str], State | None]:
    """The same, where every line that is logged meanwhile, by whomever, names worker and action."""
    from structlog.contextvars import bound_contextvars  # slow to import, and only needed here

    def told(action_id: str) -> State | None:
        with bound_contextvars(worker=worker, action_id=action_id):
            return run(action_id)

    return told


def runner(
    work: Work, store: Store, transport: Transport, name: str, watch: PipeWatch | None = None
) -> Callable[[str], State | None]:
    """A function that runs one action by its id in this process."""

    def wake(id: str) -> None:
        transport.wake_soon(id, os.urandom(4).hex())

    store.witness = Witness(work.settings.data_dir)
    return Runner(
        store,
        work.registry,
        work.keyring,
        work.settings,
        worker=name,
        watch=watch,
        wake=wake,
    ).run


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (Linux; elsewhere the lease and the
    fencing token are what is left)."""
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def worker_host() -> str:
    """This host, as the names of its workers begin."""
    return platform.node()


def worker_name() -> str:
    """`host:pid`, as the journal shows it."""
    return f"{worker_host()}:{os.getpid()}"


def store_timeout(settings: Settings) -> float:
    """Seconds for one command: well within the lease."""
    return min(5.0, settings.lease_seconds / 3)


def count_refusal(store: Store) -> None:
    """Count a job that was refused, if the store can."""
    try:
        store.bump(counters.security_event("foreign_job"))
    except StoreError as error:
        log.error("a refused job could not be counted: %s", error)
