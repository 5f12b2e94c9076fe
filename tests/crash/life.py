"""A worker's life, played in this process: the real `Runner` over a tapped connection.

It dies by an exception that nothing catches, and a dead one sends nothing more. What it cannot
show (a kill inside native code, the kernel's part) is left to `real.py`.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from redis.exceptions import ConnectionError as LinkError

from tallystick.approvals import Keyring
from tallystick.core.errors import StoreError
from tallystick.jobs.action import Action
from tallystick.jobs.registry import Registry
from tallystick.jobs.run import Runner
from tallystick.jobs.settings import Settings
from tallystick.jobs.store import Store
from tests.crash.scenario import STAND_STILL, Strike, Victim
from tests.crash.target import RESTORE, SET, UNDO
from tests.crash.wiretap import Tapped, tapped_store

_PATIENCE_SECONDS = 60
_CALLS = {f"before {what}" for what in (SET, UNDO, RESTORE)}


class Died(BaseException):
    """The worker dies here. Nothing catches it but those who bury it."""


class NoAnswer(Exception):
    """The call of the target is on its way, and its caller hears nothing."""


@dataclass
class Script:
    """The strikes that are still to come, and those that hit. Moments are counted anew from each
    strike on."""

    strikes: deque[Strike]
    moment: int = 0
    lost_one: bool = False
    struck: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, strikes: Sequence[Strike]) -> "Script":
        return cls(deque(strikes))

    @property
    def freezes(self) -> bool:
        """Whether somebody is still to be frozen."""
        return any(strike.victim in STAND_STILL for strike in self.strikes)

    @property
    def loses_a_call(self) -> bool:
        """Whether the next strike is at a call of the target."""
        return bool(self.strikes) and self.strikes[0].victim is Victim.CALL and not self.lost_one

    def passes(self, moment: str, *, at_target: bool) -> Victim | None:
        """This moment is reached; who is struck now, if anybody.

        Inside a transaction the target is locked, so that is no moment to stand still, or for a
        late call to arrive.
        """
        waits = self.strikes and self.strikes[0].victim in {*STAND_STILL, Victim.CALL}
        if moment.startswith("inside") and waits:
            return None
        if self.loses_a_call and not (at_target and moment in _CALLS):
            return None
        self.moment += 1
        self.trace.append(moment)
        if not self.strikes or self.strikes[0].moment != self.moment:
            return None
        self.moment = 0
        self.struck.append(moment)
        self.lost_one = self.lost_one or self.strikes[0].victim is Victim.CALL
        return self.strikes.popleft().victim


class Redis(Protocol):
    """The server, as those who strike it see it."""

    def kill(self) -> None: ...

    def up(self) -> None:
        """Start it, unless it runs."""


class Life:
    """One worker process. It is its own `Watch` and the listener of its own connection."""

    def __init__(
        self,
        script: Script,
        redis: Redis,
        *,
        url: str,
        settings: Settings,
        keyring: Keyring,
        types: Callable[["Life"], list[type[Action]]],
        name: str,
        frozen: Callable[["Life"], None],
        arrives: Callable[[], bool],
    ) -> None:
        self.script: Script | None = script
        self.dead = self.orphan = False
        self.held: tuple[str, str] | None = None
        self.killed_by: Victim | None = None
        self.woken: deque[str] = deque()
        self.surprises: list[str] = []
        """What it raised that is no `StoreError`: a promise of `Runner.run`."""
        self.stopped, self.goes_on = threading.Event(), threading.Event()
        self._redis = redis
        self._frozen = frozen
        self._arrives = arrives
        self._link: Tapped | None = None
        self.store: Store = tapped_store(url, settings.namespace, self)
        self.registry = Registry(types(self))
        self.runner = Runner(
            self.store,
            self.registry,
            keyring,
            settings,
            worker=name,
            watch=self,
            wake=self.woken.append,
            sleep=self._sleep,
        )

    def run(self, id: str) -> bool:
        """Take one wake-up; whether this worker lives on."""
        try:
            self.runner.run(id)
        except StoreError:
            self._redis.up()
        except Died:
            pass
        except BrokenPipeError:
            self.dead = True
        except Exception as error:  # a real work-horse lives on: RQ calls its job failed
            self.surprises.append(f"a worker raised {error!r}")
        if self.dead:
            self.store.close()
        return not self.dead

    # --- what it tells its parent ----------------------------------------------------------------

    def look(self, action_id: str) -> None:
        self._speak()

    def hold(self, action_id: str, owner: str) -> None:
        self._speak()
        self.held = (action_id, owner)

    def effect(self, seconds: float | None) -> None:
        self._speak()

    def done(self) -> None:
        self._speak()
        self.held = None

    def _speak(self) -> None:
        if self.orphan and not self.dead:
            raise BrokenPipeError

    # --- what happens to it ----------------------------------------------------------------------

    def point(self, point: str) -> None:
        """A point of the target is passed."""
        self._moment(point.replace("_", " "), None)

    def command(self, label: str, when: str, link: Tapped) -> None:
        self._link = link
        self._moment(f"{when} {label}", link)

    def _moment(self, name: str, link: Tapped | None) -> None:
        if self.dead:
            raise Died
        victim = self.script.passes(name, at_target=link is None) if self.script else None
        if victim is None:
            return
        if link and name.startswith("after"):
            link.ran()
        match victim:
            case Victim.HORSE | Victim.BOTH:
                self.dead, self.killed_by = True, victim
                raise Died
            case Victim.PARENT:
                self.orphan, self.killed_by = True, victim
            case Victim.FROZEN:
                self._frozen(self)
            case Victim.UNHEARD:
                self._frozen(self)
                self._lose_link(victim, link)
            case Victim.CALL:
                if not self._arrives():
                    raise NoAnswer
            case _:
                self._lose_link(victim, link)

    def freeze(self) -> None:
        """Stop here until somebody lets us go on. What is still to come is for others."""
        self.script = None
        self.stopped.set()
        if not self.goes_on.wait(_PATIENCE_SECONDS):
            raise Died("nobody woke the frozen worker")

    def _lose_link(self, victim: Victim, link: Tapped | None) -> None:
        if victim in {Victim.REDIS, Victim.OUTAGE}:
            self._redis.kill()
        if victim is Victim.REDIS:
            self._redis.up()
        if link:
            link.disconnect()  # type: ignore[no-untyped-call]
            raise LinkError("cut by the scenario")
        if self._link:  # at the target: the next command will notice
            self._link.disconnect()  # type: ignore[no-untyped-call]

    def _sleep(self, seconds: float) -> None:
        """Time passes while it waits; a server that was away is back."""
        self._redis.up()
