"""A world in which anything may happen next: workers go on, freeze, die, lose their leases; calls
come late; people approve, cancel, resolve; others write. Hypothesis chooses, the promises judge.
"""

import time
from typing import ClassVar, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tallystick import Protection, State
from tallystick.core.errors import ActionExpired, IllegalMove
from tallystick.jobs.resolution import RESOLUTIONS
from tallystick.jobs.states import OPEN
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.models import promises
from tests.models.target import BY_HAND, COMPENSATED, IN_BAND, Fate, Target, types
from tests.models.workers import SimWorker

Some = TypeVar("Some")

_MOST_WORKERS, _MOST_ACTIONS, _MOST_ROUNDS = 4, 2, 40
_YEARS = 10 * 365 * 24 * 3600.0


which = st.integers(min_value=0, max_value=7)
fates = st.sampled_from([None, *Fate])
"""What becomes of the next call; None leaves it as it was to be."""
verbs = st.sampled_from(["approve", "reject", "cancel", "acknowledge", *RESOLUTIONS])
TO_THE_END = 99
steps = st.one_of(st.integers(min_value=1, max_value=30), st.just(TO_THE_END))
"""A clean run makes some twenty, and one that recovers or undoes makes more."""


class ProtocolMachine(RuleBasedStateMachine):
    """One target of one protection, up to two actions, up to four workers at a time."""

    protection: ClassVar[Protection]

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.ahead = 0.0
        real = time.time
        self.patch.setattr(time, "time", lambda: real() + self.ahead)
        self.target = Target(self.protection)
        self.bench = Bench(*types(self.target))
        self.actions: list[str] = []
        self.workers: list[SimWorker] = []
        self.hired = 0
        self.lied = self.meddled = False
        self.looked_at: object = None

    # --- people ------------------------------------------------------------------------------

    @initialize(kind=st.sampled_from([IN_BAND, COMPENSATED]))
    def first(self, kind: str) -> None:
        self._propose(kind)
        self.bench.tally.approve(self.actions[0], by="approver")

    @precondition(lambda self: len(self.actions) < _MOST_ACTIONS)
    @rule(kind=st.sampled_from([IN_BAND, COMPENSATED, BY_HAND]), approved=st.booleans())
    def another(self, kind: str, approved: bool) -> None:
        self._propose(kind)
        if approved:
            self.bench.tally.approve(self.actions[-1], by="approver")

    def _propose(self, kind: str) -> None:
        readable, self.target.readable = self.target.readable, True
        params = {"item": f"item-{len(self.actions)}", "value": "new"}
        self.actions.append(self.bench.propose(kind, params).id)
        self.target.readable = readable

    @rule(n=which, verb=verbs)
    def a_person(self, n: int, verb: str) -> None:
        tally, id = self.bench.tally, self._one(self._all(), n)
        try:
            match verb:
                case "approve":
                    tally.approve(id, by="approver")
                case "reject":
                    tally.reject(id, by="approver", reason="no")
                case "cancel":
                    tally.cancel(id, by="producer")
                case "acknowledge":
                    tally.acknowledge(id, by="someone")
                case _:
                    tally.resolve(id, to=verb, by="someone", evidence="looked")
        except (IllegalMove, ActionExpired):
            return

    # --- workers -----------------------------------------------------------------------------

    @precondition(lambda self: len(self._alive()) < _MOST_WORKERS)
    @rule(n=which, steps=steps, fate=fates, lease_runs_out=st.booleans())
    def a_worker_comes(self, n: int, steps: int, fate: Fate | None, lease_runs_out: bool) -> None:
        id = self._one(self._in(*OPEN) or self._all(), n)
        if lease_runs_out:
            self._free(id)
        self._next_call(fate)
        self._hire(id).step(steps)

    @precondition(lambda self: self._alive())
    @rule(n=which, steps=steps, fate=fates)
    def it_goes_on(self, n: int, steps: int, fate: Fate | None) -> None:
        self._next_call(fate)
        self._one(self._alive(), n).step(steps)

    @precondition(lambda self: self._alive())
    @rule(n=which)
    def it_dies(self, n: int) -> None:
        self._one(self._alive(), n).kill()

    @precondition(lambda self: self._alive())
    @rule(n=which, how=st.sampled_from(["for once", "before it ran", "after it ran"]))
    def the_store_will_fail_it(self, n: int, how: str) -> None:
        worker = self._one(self._alive(), n)
        if how == "for once":
            worker.loses_a_reply = True
        else:
            worker.is_failed = how.partition(" ")[0]

    # --- the world ---------------------------------------------------------------------------

    @precondition(lambda self: self.target.under_way)
    @rule(n=which, arrives=st.booleans())
    def late_call(self, n: int, arrives: bool) -> None:
        call = self._one(self.target.under_way, n)
        if arrives:
            self.target.deliver(call)
        else:
            self.target.under_way.remove(call)

    @rule(n=which, what=st.sampled_from(["reading", "reading", "others", "approvals"]))
    def the_world(self, n: int, what: str) -> None:
        match what:
            case "reading":
                self.target.readable = not self.target.readable
            case "others" if not self.lied:
                self.meddled = True
                self.target.meddle(f"item-{n % len(self.actions)}")
            case "approvals" if n == 0:
                self.ahead += _YEARS

    def _next_call(self, fate: Fate | None) -> None:
        """A lie is not told by a blind target, whose answer is all there is to judge by, nor where
        others write: nothing could tell their work from what was answered for."""
        if fate is Fate.LIE:
            if self.meddled or self.protection is Protection.BLIND:
                return
            self.lied = True
        self.target.fate = fate or self.target.fate

    # --- what must be so ---------------------------------------------------------------------

    @invariant()
    def promises_are_kept(self) -> None:
        store, target = self.bench.tally.store, self.target
        moves = self.bench.redis.hget(store.keys.counters, counters.MOVES)
        looked_at = (moves, len(target.ledger), sorted(target.values.items()))
        if looked_at == self.looked_at:
            return
        self.looked_at = looked_at
        books = promises.Books.read(self.bench, self.target)
        for promise in promises.ALL:
            promise(books)

    def teardown(self) -> None:
        """Whatever was begun ends: zombies wake up, late calls arrive, fresh workers take over."""
        try:
            if self.actions:
                self._to_the_end()
        finally:
            for worker in self._alive():
                worker.kill()
            self.patch.undo()

    def _to_the_end(self) -> None:
        self.target.readable = True
        for worker in self._alive():
            worker.finish()
        for _ in range(_MOST_ROUNDS):
            left = self._in(*(OPEN - {State.WAITING_FOR_APPROVAL}))
            for id in left:
                self._free(id)
                self._hire(id).finish()
            if not left:
                break
        for call in list(self.target.under_way):
            self.target.deliver(call)
        self.promises_are_kept()
        promises.nothing_is_left_behind(promises.Books.read(self.bench, self.target))

    # --- short forms -------------------------------------------------------------------------

    def _hire(self, id: str) -> SimWorker:
        self.hired += 1
        worker = SimWorker(self.bench, id, f"worker-{self.hired}")
        self.workers = [*self._alive(), worker]
        return worker

    def _alive(self) -> list[SimWorker]:
        return [worker for worker in self.workers if not worker.over]

    def _all(self) -> list[str]:
        """Actions and compensations, in an order that does not hang on random ids."""
        store = self.bench.tally.store
        owners = [store.owner_of(f"tallystick:rollback:{id}")[0] for id in self.actions]
        return self.actions + [owner[0] for owner in owners if owner]

    def _in(self, *states: State) -> list[str]:
        return [id for id in self._all() if self.bench.state(id) in states]

    def _free(self, id: str) -> None:
        self.bench.redis.delete(self.bench.tally.store.keys.lease(id))

    @staticmethod
    def _one(some: list[Some], n: int) -> Some:
        return some[n % len(some)]
