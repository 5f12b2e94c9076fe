"""The worker parent: keeps work-horses alive and honest, and recovers what dead ones held.

It renews the lease of whatever a work-horse holds, kills one that overruns, sees a death at once
and frees the action, replaces the dead, and runs the recoverer. It executes no action code.
"""

import contextlib
import json
import logging
import os
import selectors
import signal
import time
from dataclasses import dataclass, field
from types import FrameType

from tallystick.core.errors import StoreError
from tallystick.jobs.complaints import Complaints
from tallystick.jobs.doctor import Guard
from tallystick.jobs.giving_up import note_death
from tallystick.jobs.horse import LONGEST_HOLD_LEASES, Horse, reason
from tallystick.jobs.patience import Patience
from tallystick.jobs.recoverer import Recoverer
from tallystick.jobs.rewind import Historian
from tallystick.jobs.store import Store
from tallystick.jobs.transport import Transport
from tallystick.jobs.witness import Witness
from tallystick.jobs.worker import (
    Work,
    run_work_horse,
    store_timeout,
    tell_end,
    worker_name,
)
from tallystick.metrics import counters

log = logging.getLogger("tallystick.worker")

_STOPS = (signal.SIGTERM, signal.SIGINT)
_TICK_SECONDS = 0.2
_SWEEP_SECONDS = 0.5
_HEARTBEAT_SECONDS = 3.0
_BURST_IDLE_SECONDS = 3.0
_QUICK_DEATH_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 5.0
_OVERRUN_REMEDY = {
    "deadline": "If its target is merely slow, raise TALLYSTICK_EFFECT_DEADLINE_SECONDS",
    "hang": "Look at what its action type does outside of execute: it has no deadline of its own",
}
_GRACE_SECONDS = 2.0
"""After a trouble of the store: who lives and holds an action is let first, before it is woken."""


@dataclass
class Supervisor:
    """Runs `processes` work-horses until SIGTERM or, with `burst`, until no work is left."""

    work: Work
    processes: int
    burst: bool = False
    horses: dict[int, Horse] = field(default_factory=dict)
    _stopping: bool = False
    _pause: float = 0.0
    _start_at: float = 0.0
    _sweep_at: float = 0.0
    _graced: bool = False
    """The next sweep has been put off once already."""
    _history_at: float = 0.0
    _beat_at: float = 0.0
    _idle_since: float = 0.0

    def run(self) -> int:
        """Work; the exit status: 0 after a clean stop, 1 of a burst that may take no work.

        Raises `StoreError` if it is a burst and the store does not answer; else it waits for it.
        """
        settings = self.work.settings
        self._guard = Guard(self.work.url, settings)
        self._lease = settings.lease_seconds
        self._patience = Patience(Complaints(log), self._store_failed)
        self._store = Store.connect(
            self.work.url,
            settings.namespace,
            timeout=store_timeout(settings),
            replicas=settings.replicas,
        )
        self._transport = Transport.connect(self.work.url, settings)
        self._recoverer = Recoverer(self._store, self._transport, settings)
        witness = Witness(settings.data_dir)
        self._historian = Historian(self._store, witness, worker=worker_name())
        self._selector = selectors.DefaultSelector()
        self._idle_since = time.monotonic()
        if self.burst:
            self._store.ping()
        for number in _STOPS:
            signal.signal(number, self._on_stop)
        try:
            while self._step():
                pass
        finally:
            self._kill_all()
            self._patience.begin_turn()
            self._patience.ask(self._recoverer.stop)
            self._patience.ask(lambda: self._store.forget([h.name for h in self.horses.values()]))
            self._store.close()
            witness.close()
            self._transport.close()
            self._guard.close()
        return int(self.burst and self._guard.refuses)

    def _step(self) -> bool:
        """One turn of the loop; False when it is over."""
        self._patience.begin_turn()
        self._heed_guard()
        self._start_missing()
        for key, _ in self._selector.select(_TICK_SECONDS):
            self._listen(self.horses[key.data])
        for horse in list(self.horses.values()):
            self._reap(horse)
        now = time.monotonic()
        self._kill_overruns(now)
        self._renew_leases(now)
        self._look_after_the_store(now)
        over = self.burst and not self._stopping
        if over and (self._guard.refusals > 1 or self._finished(now)):
            self._stop()
        return not (self._stopping and not self.horses)

    def _look_after_the_store(self, now: float) -> None:
        """Say who lives, look for a rewind, wake what is due. While the store is in trouble it is
        only asked whether that is over."""
        if self._patience.recovered(self._store.check_writable):
            self._beat_at, self._history_at = 0.0, 0.0
            if not self._graced:
                self._sweep_at, self._graced = now + _GRACE_SECONDS, True
        if self._patience.troubled:
            return
        self._patience.settle_debts()
        if now >= self._beat_at:
            self._beat_at = now + _HEARTBEAT_SECONDS
            names = [horse.name for horse in self.horses.values()]
            self._patience.ask(lambda: self._store.heartbeat(names))
        if now >= self._history_at:
            self._history_at = now + _SWEEP_SECONDS
            self._patience.ask(self._look_back)
        if now >= self._sweep_at and not self._stopping:
            self._sweep_at, self._graced = now + _SWEEP_SECONDS, False
            self._patience.ask(self._recoverer.tick)

    def _look_back(self) -> None:
        """After a rewind nothing is woken in this turn: what is open has been halted."""
        if self._historian.check():
            self._sweep_at = time.monotonic() + _SWEEP_SECONDS

    def _store_failed(self, now: float, passing: bool) -> None:
        """It may come back as another. Nobody hangs who waits until it has passed."""
        self._guard.doubt(now)
        if not passing:
            return
        for horse in self.horses.values():
            if not horse.acting:
                horse.kill_at = max(horse.kill_at, now + LONGEST_HOLD_LEASES * self._lease)

    def _heed_guard(self) -> None:
        """While the guard refuses, no work-horse takes anything new: those there are finish what
        they hold and end, and none is started. Leases, recovery and alerts go on."""
        self._guard.check(time.monotonic())
        if self._guard.refuses:
            self._dismiss()

    # --- children --------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        """Have as many work-horses as are wanted. After one that died at once, and while the store
        takes no writes, there is no use in many: a single one tries."""
        if self._stopping or self._guard.refuses or time.monotonic() < self._start_at:
            return
        while len(self.horses) < self.processes and not self._patience.troubled:
            self._start_one()
            if self._pause:
                self._start_at = time.monotonic() + self._pause
                break

    def _start_one(self) -> None:
        """Fork a work-horse. Signals wait meanwhile: one that came in between would be lost, for a
        child that is not yet known here or that still has its parent's handlers."""
        reading, writing = os.pipe()
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        try:
            pid = os.fork()
            if pid == 0:
                _become_work_horse(self.work, reading, writing, parent, list(self.horses.values()))
            os.close(writing)
            os.set_blocking(reading, False)
            name = worker_name().rsplit(":", 1)[0] + f":{pid}"
            self.horses[pid] = Horse(pid, reading, name, time.monotonic())
            self._selector.register(reading, selectors.EVENT_READ, pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        self._beat_at = 0.0
        after_trouble = self._pause > 0  # its predecessor could do nothing, and it may not either
        log.log(logging.DEBUG if after_trouble else logging.INFO, "work-horse %d started", pid)

    def _listen(self, horse: Horse) -> None:
        """Take in what a work-horse says. An end of file is its death, told at once; it is reaped
        by its pid, since a process that its action forked may hold the pipe open."""
        try:
            heard = os.read(horse.pipe, 65536)
        except BlockingIOError:
            return
        *lines, horse.heard = (horse.heard + heard).split(b"\n")
        now = time.monotonic()
        for line in lines:
            horse.hear(json.loads(line), now, self._lease)

    def _reap(self, horse: Horse) -> None:
        pid, status = os.waitpid(horse.pid, os.WNOHANG)
        if pid:
            self._listen(horse)
            self._bury(horse, status)

    def _bury(self, horse: Horse, status: int) -> None:
        """Free what a dead work-horse held, have it recovered at once, and end what it forked."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(horse.pid, signal.SIGKILL)
        self._selector.unregister(horse.pipe)
        os.close(horse.pipe)
        del self.horses[horse.pid]
        owe = self._patience.owe
        owe(lambda: self._store.forget([horse.name]))
        why = horse.killed_for or reason(status)
        if horse.ends:
            self._patience.hear(*horse.ends)
        elif why:
            self._guard.doubt(time.monotonic())  # the store may have failed it, and come back
            told = "work-horse %d died (%s)%s. It is replaced; if this repeats, %s"
            fields = horse.fields(reason=why)
            remedy = "look for the out-of-memory killer (dmesg) and at its action's code"
            log.warning(told, horse.pid, why, horse.holding, remedy, extra=fields)
            owe(lambda: self._store.bump(counters.workhorse_exit(why)))
        if horse.owner:
            owe(lambda: self._free(horse))
        elif horse.action_id:
            owe(lambda: note_death(self._store, horse.action_id, worker=horse.name, how=why))
        futile = why and not horse.action_id and horse.age < _QUICK_DEATH_SECONDS
        self._pause = min(max(self._pause * 2, 0.1), _LONGEST_PAUSE_SECONDS) if futile else 0
        self._start_at = time.monotonic() + self._pause

    def _free(self, horse: Horse) -> None:
        """Have the action of a dead work-horse recovered now, by whoever takes the wake-up."""
        if self._store.release(horse.action_id, horse.owner):
            self._transport.wake_soon(horse.action_id, horse.owner)

    def _kill_overruns(self, now: float) -> None:
        for horse in self.horses.values():
            if now >= horse.kill_at and not horse.killed_for:
                horse.killed_for = "deadline" if horse.acting else "hang"
                told = "work-horse %d overruns%s: killed. %s"
                remedy = _OVERRUN_REMEDY[horse.killed_for]
                log.error(told, horse.pid, horse.holding, remedy, extra=horse.fields())
                os.kill(horse.pid, signal.SIGKILL)

    def _renew_leases(self, now: float) -> None:
        for horse in self.horses.values():
            if horse.owner and now >= horse.renew_at and not self._patience.troubled:
                renewed = self._patience.ask(
                    lambda horse=horse: self._store.renew(  # type: ignore[misc]
                        horse.action_id, horse.owner, lease_ms=int(self._lease * 1000)
                    )
                )
                horse.renew_at = now + self._lease / 3 if renewed else now

    # --- the end ---------------------------------------------------------------------------------

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self._stopping:
            self._kill_all()
        else:
            log.info("stopping: work-horses finish what they hold")
            self._stop()

    def _stop(self) -> None:
        self._stopping = True
        self._dismiss()

    def _dismiss(self) -> None:
        """Have every work-horse finish what it holds and end. Told twice it would end at once."""
        for horse in self.horses.values():
            if not horse.dismissed:
                horse.dismissed = True
                os.kill(horse.pid, signal.SIGTERM)

    def _kill_all(self) -> None:
        for horse in self.horses.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(horse.pid, signal.SIGKILL)

    def _finished(self, now: float) -> bool:
        """Burst: no action is approved or in flight, or none of those has moved for a while."""
        if any(horse.action_id for horse in self.horses.values()):
            self._idle_since = now
            return False
        try:
            if self._transport.depth() or self._store.due_now():
                self._idle_since = now
                return False
            left = self._store.open_work()
        except StoreError as error:
            self._patience.complain(error)
            return False
        return left == 0 or now - self._idle_since > _BURST_IDLE_SECONDS


def _become_work_horse(
    work: Work, reading: int, writing: int, parent: int, siblings: list[Horse]
) -> None:
    """The child's side of the fork; never returns."""
    status = 1
    try:
        for number in _STOPS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        os.close(reading)
        for sibling in siblings:
            os.close(sibling.pipe)
        run_work_horse(work, writing, parent)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except StoreError as error:  # its parent says so, once for all of them
        with contextlib.suppress(OSError):
            tell_end(writing, error)
    except BaseException:  # the fork boundary: report, and end this process and no more
        log.exception("work-horse failed")
    finally:
        logging.shutdown()
        os._exit(status)
