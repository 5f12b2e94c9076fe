"""A bench for action types: propose, approve, run, crash at a named point, look at the state.

Everything runs in this process on fakeredis, with the same code that a worker runs; there is no
server, no RQ and no second process. Crashes are exceptions here: what SIGKILL does to a real
worker is tested in Tallystick's own suite.
"""

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fakeredis

from tallystick.approvals import Keyring, Signer
from tallystick.jobs.action import Action
from tallystick.jobs.registry import Registry
from tallystick.jobs.run import Runner
from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.jobs.states import AT_REST, State
from tallystick.jobs.store import Store
from tallystick.jobs.view import ActionRecord

POINTS = (
    "after_claim",
    "after_intent",
    "before_effect",
    "after_effect",
    "after_reply",
    "after_verify",
    "after_rollback_intent",
    "before_undo",
    "after_undo",
    "after_compensation",
)
"""Where a run can be made to crash, in the order in which it passes them."""

_MOST_RUNS = 50


class Crash(BaseException):
    """The worker dies here. It derives from BaseException so that nothing handles it."""


class Bench:
    """An in-process Tallystick for these action types.

    `bench.tally` is the real `Tallystick`; `propose` and `approve` are short forms for tests,
    `run` is the worker, and `crash` a worker that dies.
    """

    def __init__(self, *types: type[Action], **settings: Any) -> None:
        given = {"verify_deadline_seconds": 0, "data_dir": Path(tempfile.gettempdir())} | settings
        self.settings = Settings.load(**given)
        client = fakeredis.FakeRedis(decode_responses=True, server=fakeredis.FakeServer())
        signer = Signer.generate()
        self.tally = Tallystick(
            Store(client, self.settings.namespace, url="fakeredis"),
            Registry(types),
            signer=signer,
            keyring=Keyring({signer.key_id: signer.public}),
            settings=self.settings,
        )
        self.redis = client
        """The fakeredis client, for tests that tamper."""
        self.worker = "bench-1"
        self._numbers = itertools.count(1)
        self._workers = itertools.count(2)
        self._woken: list[str] = []

    def propose(
        self,
        name: str,
        params: Any,
        *,
        key: str | None = None,
        by: str = "producer",
        reason: str = "",
    ) -> ActionRecord:
        """Propose; the key is made up unless given."""
        key = key or f"key-{next(self._numbers)}"
        return self.tally.propose(name, params, key=key, by=by, reason=reason)

    def approved(self, name: str, params: Any, *, by: str = "approver", **given: Any) -> str:
        """Propose and approve (answering a challenge, and with as many approvers as the quorum
        asks); the id of the action, ready to run."""
        found = self.propose(name, params, **given)
        for voter in range(found.policy["quorum"]):
            who = by if voter == 0 else f"{by}-{voter + 1}"
            self.tally.approve(found.id, by=who, answer=found.challenge)
        return found.id

    def run(self, id: str) -> ActionRecord:
        """Run an action, and whatever it wakes, until nothing more happens by itself."""
        self._woken = [id]
        for _ in range(_MOST_RUNS):
            if not self._woken:
                break
            self._runner().run(self._woken.pop(0))
        return self.tally.get(id)

    def crash(self, id: str, at: str) -> ActionRecord:
        """Run an action with a worker that dies at this point (one of `POINTS`).

        The dead worker's lease is freed, as its parent would, so that `run` recovers at once.
        Raises ValueError for an unknown point, AssertionError if the run does not pass it.
        """
        if at not in POINTS:
            raise ValueError(f"{at!r} is no point of a run; there are {', '.join(POINTS)}")
        holder = _Holder()

        def checkpoint(point: str) -> None:
            if point == at:
                raise Crash(point)

        try:
            self._runner(checkpoint=checkpoint, watch=holder).run(id)
        except Crash:
            self.worker = f"bench-{next(self._workers)}"
            if holder.held:
                self.tally.store.release(*holder.held)
            return self.tally.get(id)
        raise AssertionError(f"the run of {id} did not pass {at!r}")

    def state(self, id: str) -> State:
        """Where an action is."""
        return self.tally.get(id).state

    def events(self, id: str) -> Sequence[str]:
        """What happened to an action, oldest first: the events of its journal."""
        return [str(line.evidence["event"]) for line in self.tally.history(id)]

    def alerts(self) -> Sequence[str]:
        """The alerts in the outbox, as JSON texts."""
        return self.tally.store.alerts()

    def at_rest(self, id: str) -> bool:
        """Whether nothing more happens to an action by itself."""
        return self.state(id) in AT_REST

    def _runner(self, **given: Any) -> Runner:
        return Runner(
            self.tally.store,
            self.tally.registry,
            self.tally.keyring,
            self.settings,
            worker=self.worker,
            wake=self._woken.append,
            **given,
        )


class _Holder:
    """Remembers what a run held when it died."""

    held: tuple[str, str] | None = None

    def look(self, action_id: str) -> None: ...

    def hold(self, action_id: str, owner: str) -> None:
        self.held = (action_id, owner)

    def effect(self, seconds: float | None) -> None: ...

    def done(self) -> None: ...
