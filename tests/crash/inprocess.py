"""The fast driver: a real private server, a real `Runner`, and strikes as exceptions.

A `Place` has the server and the target and plays one scenario after the other, each in a namespace
of its own. Time is not waited for: when nothing is due, every lease runs out and all that is
scheduled comes due, as it would in time; what is not scheduled stays where it is.
"""

import contextlib
import itertools
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from tallystick import Context, NotApplied, Protection, StaleFence
from tallystick.approvals import Keyring, Signer
from tallystick.core.errors import StoreError, TallystickError
from tallystick.jobs import wire
from tallystick.jobs.connection import connect
from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.jobs.store import Store
from tests.crash import checker
from tests.crash.actions import COMMIT, types
from tests.crash.life import Died, Life, NoAnswer, Script
from tests.crash.scenario import Outcome, Scenario, Victim, Violation
from tests.crash.target import Target
from tests.server.conftest import Server

NAME = "in process"
DECIDE = "decide"
"""The path whose strikes hit the producer and approver instead of the worker."""

_SWEEP_LOCK_MS, _AGAIN_MS = 60_000, 1_000
_MOST_TURNS = 60


def memory() -> Path:
    """A folder in memory, if there is one: what is tested is SIGKILL, which needs no disk."""
    shm = Path("/dev/shm")
    return shm if shm.is_dir() else Path(tempfile.gettempdir())


class Place:
    """A server and a target, for many scenarios."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server(folder)
        self.target = Target(folder)
        self.signer = Signer.generate()
        self.keyring = Keyring({self.signer.key_id: self.signer.public})
        self.settings = Settings.load(data_dir=folder, lease_seconds=2, actions=())
        self.client = connect(self.server.url, timeout=5, retries=False, decode=True)
        self._numbers = itertools.count(1)

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator["Place"]:
        with tempfile.TemporaryDirectory(dir=memory(), prefix="crash-") as folder:
            place = cls(Path(folder))
            place.target.create()
            place.up()
            for script in Store(place.client, "scripts")._scripts.values():
                place.client.script_load(script.script)  # so that moments have the same numbers
            try:
                with mock.patch.object(wire, "_PAUSE_SECONDS", (0.0, 0.0)):
                    yield place
            finally:
                place.client.close()
                place.kill()

    def kill(self) -> None:
        self.server.stop()

    def up(self) -> None:
        if self.server.process is None:
            self.server.start()

    def play(self, scenario: Scenario) -> Outcome:
        """Play one scenario to rest, and have it judged."""
        scene = Scene(self, scenario, f"s{next(self._numbers)}")
        with contextlib.closing(scene):
            scene.play()
            return scene.judged()


@dataclass
class Scene:
    """One scenario: an action, and the workers that come and go."""

    place: Place
    scenario: Scenario
    namespace: str
    id: str = ""
    lives: int = 0
    frozen: "Frozen | None" = None
    thawed: bool = False
    surprises: list[str] = field(default_factory=list)
    queue: deque[str] = field(default_factory=deque)
    flying: deque[Callable[[], object]] = field(default_factory=deque)
    """Calls of the target that are under way."""

    def __post_init__(self) -> None:
        strikes, none = Script.of(self.scenario.strikes), Script.of(())
        decide = self.scenario.path == DECIDE
        self.deciding, self.script = (strikes, none) if decide else (none, strikes)
        self.settings = self.place.settings.model_copy(update={"namespace": self.namespace})
        self.store = Store(self.place.client, self.namespace, url=self.place.server.url)
        self.item = self.namespace
        self.place.target.add(self.item)

    def play(self) -> None:
        self.decide()
        life = self.new_life(self.script)
        self.queue.append(self.id)
        for _ in range(_MOST_TURNS):
            life = self._take_all(life)
            if due := self._due():
                self.queue.extend(due)
            elif self.store.open_work() == 0:
                if self.frozen is None and not self.arrive():
                    break
                self.thaw()
            elif not self._time_passes():
                break
        life.store.close()

    def judged(self) -> Outcome:
        case = checker.Case(
            self.namespace,
            self.id,
            self.item,
            self.scenario,
            frozenset({(self.place.signer.key_id, self.place.signer.public)}),
            survivor=self.thawed,
        )
        books = checker.Books(self.place.folder / "target.db", self.place.client)
        state, effects, journal, found = checker.judge(books, case)
        found += [Violation("only_store_errors_are_raised", what) for what in self.surprises]
        struck = (*self.deciding.struck, *self.script.struck)
        return Outcome(self.scenario, struck, state, effects, tuple(found), tuple(journal))

    def close(self) -> None:
        if self.frozen:
            self.thaw()
        self.place.up()

    # --- before the run --------------------------------------------------------------------------

    def decide(self) -> None:
        """Propose and approve; a producer that dies or gets no answer says the same again."""
        path = COMMIT if self.scenario.path == DECIDE else self.scenario.path
        name, params = f"{path}.{self.scenario.protection}", {"item": self.item, "value": "new"}
        while True:
            client = self.new_life(self.deciding)
            tally = Tallystick(
                client.store,
                client.registry,
                signer=self.place.signer,
                keyring=self.place.keyring,
                settings=self.settings,
            )
            try:
                self.id = tally.propose(name, params, key=self.item, by="producer").id
                if not self.scenario.strikes:
                    self._be_impatient(tally, name, params)
                tally.approve(self.id, by="approver")
                return
            except (Died, StoreError):
                self.place.up()
            except (TallystickError, ValueError) as error:
                self.surprises.append(f"a producer or approver met {error!r}")
                if self.id:
                    return
            finally:
                client.store.close()

    def _be_impatient(self, tally: Tallystick, name: str, params: dict[str, str]) -> None:
        """What must change nothing: the same proposal again, and a wake-up before the approval."""
        tally.propose(name, params, key=self.item, by="producer")
        worker = self.new_life(Script.of(()))
        worker.run(self.id)
        worker.store.close()

    # --- the run ---------------------------------------------------------------------------------

    def new_life(self, script: Script) -> Life:
        self.lives += 1
        return Life(
            script,
            self.place,
            url=self.place.server.url,
            settings=self.settings,
            keyring=self.place.keyring,
            types=lambda life: types(
                Remote(self.place.folder, life.point, self.flying), self.scenario.protection
            ),
            name=f"worker-{self.lives}",
            frozen=self.freeze,
            arrives=self.arrive,
        )

    def _take_all(self, life: Life) -> Life:
        """Run every wake-up in the queue; the worker that is alive at the end."""
        while self.queue:
            id = self.queue.popleft()
            if self.script.freezes and not (self.frozen or self.thawed):
                alive = self._run_until_frozen(life, id)
            else:
                alive = life.run(id)
            self.queue.extend(life.woken)
            life.woken.clear()
            self._hear(life)
            self.place.up()
            if not alive:
                self._bury(life)
                life = self.new_life(self.script)
        return life

    def _hear(self, life: Life) -> None:
        """Keep what it raised that it should not."""
        self.surprises += life.surprises
        life.surprises.clear()

    def _bury(self, life: Life) -> None:
        """A parent frees what its dead work-horse held; a dead or frozen parent frees nothing."""
        if life.killed_by is Victim.HORSE and life.held:
            self.store.release(*life.held)
        self.queue.clear()

    def _run_until_frozen(self, life: Life, id: str) -> bool:
        frozen = Frozen(life, id)
        frozen.start()
        assert life.stopped.wait(60), "the worker neither froze nor ended"
        if frozen.over:
            frozen.finish()
            life.stopped.clear()
            return not life.dead
        self.frozen = frozen
        self._time_passes()
        return False

    def freeze(self, life: Life) -> None:
        """The first whom it hits is frozen; the second wakes the first."""
        if self.frozen or self.thawed:
            self.thaw()
        else:
            life.freeze()

    def thaw(self) -> None:
        """The frozen worker goes on, and comes to the end of its run."""
        if self.frozen:
            frozen, self.frozen = self.frozen, None
            self.thawed = True
            frozen.finish()
            self._hear(frozen.life)
            frozen.life.store.close()

    def arrive(self) -> bool:
        """What is under way to the target arrives; whether anything was."""
        if not self.flying:
            return False
        with contextlib.suppress(NotApplied, StaleFence):
            self.flying.popleft()()
        return True

    # --- time ------------------------------------------------------------------------------------

    def _due(self) -> list[str]:
        found = self.store.sweep("sweeper", lock_ms=_SWEEP_LOCK_MS, limit=100, again_ms=_AGAIN_MS)
        return [id for id, _ in found or []]

    def _time_passes(self) -> bool:
        """Every lease runs out, all that is scheduled is due; False if nothing is."""
        keys, client = self.store.keys, self.place.client
        ids: Any = client.zrange(keys.due, 0, -1)
        if not ids:
            return False
        pipe = client.pipeline(transaction=True)
        pipe.delete(*[keys.lease(id) for id in ids])
        pipe.zadd(keys.due, dict.fromkeys(ids, 0))
        pipe.execute()
        return True


@dataclass(frozen=True)
class Remote(Target):
    """The target at the other end of a network, which may deliver late."""

    flying: deque[Callable[[], object]] = field(default_factory=deque)

    def call(
        self, protection: Protection, item: str, value: str, what: str, context: Context
    ) -> dict[str, Any]:
        try:
            return super().call(protection, item, value, what, context)
        except NoAnswer:
            late = Target(self.folder)
            self.flying.append(partial(late.call, protection, item, value, what, context))
            raise TimeoutError("no answer") from None


class Frozen(threading.Thread):
    """A worker in a thread of its own, that is to be frozen on the way."""

    def __init__(self, life: Life, id: str) -> None:
        super().__init__()
        self.life, self._id = life, id
        self.over = False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.life.run(self._id)
        except BaseException as error:
            self.error = error
        self.over = True
        self.life.stopped.set()

    def finish(self) -> None:
        """Let it go on, and wait until its run is over."""
        self.life.goes_on.set()
        self.join(60)
        assert not self.is_alive(), "the frozen worker does not come to an end"
        if self.error:
            raise self.error
