"""The store fails at every call of a run, and stays so until the lease has run out.

The worker that lives through it is the only one who knows what it did and did not send. It waits,
and says so: nothing is sent twice, no attempt is used up, and no person is called.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tallystick import Compensate, InBand, Protection, State
from tallystick.core.errors import (
    NotReplicated,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreSuspended,
    StoreTrouble,
    StoreUnavailable,
)
from tallystick.jobs.record import Record
from tallystick.jobs.store import Store
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.driving import TEN, lease_runs_out, opened, record_of, redis_of, until_rest
from tests.targets import COMPENSATED, DEPOSIT, RESTORE, Bank, Trouble

_SLEEPS = 4
"""So often does a waiting worker find the store as it was."""

TROUBLES: dict[str, tuple[StoreTrouble, bool]] = {
    "not sent": (StoreUnavailable(url="redis", problem="refused"), False),
    "reply lost": (StoreUnavailable(url="redis", problem="timed out"), True),
    "read-only": (StoreReadOnly(url="redis"), False),
    "full": (StoreFull(url="redis"), False),
    "suspended": (StoreSuspended(url="redis", problem="NOREPLICAS"), False),
    "not replicated": (NotReplicated(url="redis", wanted=1, problem="0 of 1"), True),
}
"""What the store raises, and whether the first call was carried out all the same."""


class Failing(Store):
    """A store whose calls fail from the n-th on, until somebody mends it."""

    calls = 0
    strikes_at = 0
    struck = ""
    error: StoreTrouble | None = None
    carried_out = False
    sleeps = 0
    over: Callable[[], object] = staticmethod(lambda: None)
    """What has happened by the time that the store is mended."""

    def _script(self, name: str, keys: Any, args: Any, **given: Any) -> Any:
        self.calls += 1
        if self.error is None or self.calls < self.strikes_at:
            return super()._script(name, keys, args, **given)
        if not self.struck:
            self.struck = name
            if self.carried_out:
                super()._script(name, keys, args, **given)
        raise self.error

    def sleep(self, seconds: float) -> None:
        """What a waiting worker does: time passes, and in the end the store is mended."""
        self.sleeps += 1
        if self.sleeps == _SLEEPS:
            self.mend()
            self.over()

    def mend(self) -> None:
        self.error = None


def through(bench: Bench, id: str, at: int, trouble: str, **given: Any) -> Failing:
    """Run an action with a store that fails at its `at`-th call; the store, mended."""
    healthy = bench.tally.store
    store = Failing(bench.redis, bench.settings.namespace)
    store.strikes_at = at
    store.error, store.carried_out = TROUBLES[trouble]
    store.over = given.get("over") or (lambda: lease_runs_out(bench, id))
    bench.tally.store = store
    try:
        bench._runner(sleep=store.sleep).run(id)
    except StoreError:  # before anything was claimed: it is found again by the recoverer
        lease_runs_out(bench, id)
    store.mend()
    bench.tally.store = healthy
    return store


def every_call(
    protection: Protection, trouble: str, prepare: Callable[[Bank], object], **attributes: Any
) -> Iterator[tuple[str, Bank, Bench, Record]]:
    """One action for every call of its run: what was struck, and the record once it is at rest."""
    struck: list[str] = []
    while True:
        bank, bench = opened(protection, **attributes)
        id = bench.approved(DEPOSIT, TEN)
        prepare(bank)
        store = through(bench, id, len(struck) + 1, trouble)
        if not store.struck:
            break
        struck.append(store.struck)
        until_rest(bench, id)
        yield f"{store.struck}, call {len(struck)}", bank, bench, record_of(bench, id)
    assert len(struck) >= 5, "a run makes five calls at least"


by_protection = pytest.mark.parametrize("protection", Protection)


@pytest.mark.parametrize("trouble", TROUBLES)
@by_protection
def test_a_run_that_lives_through_it_commits_one_effect_at_the_first_attempt(
    protection: Protection, trouble: str
) -> None:
    for call, bank, bench, record in every_call(protection, trouble, lambda bank: None):
        assert record.state is State.COMMITTED, call
        assert (bank.effects(), len(bank.calls), record.attempts) == (1, 1, 1), call
        assert bench.alerts() == [], call


@pytest.mark.parametrize("trouble", ["not sent", "reply lost", "not replicated"])
@by_protection
@pytest.mark.parametrize("rollback", [InBand("undo"), COMPENSATED], ids=["in-band", "compensated"])
def test_a_wrong_effect_is_undone_once_all_the_same(
    protection: Protection, trouble: str, rollback: InBand | Compensate
) -> None:
    if protection is Protection.BLIND and rollback is COMPENSATED:
        return  # nothing could show that the compensation worked

    def lands_wrong(bank: Bank) -> None:
        bank.troubles.append(Trouble.LANDS_WRONG)

    for call, bank, _, record in every_call(protection, trouble, lands_wrong, rollback=rollback):
        undone = State.ROLLBACK_FAILED if protection is Protection.BLIND else State.ROLLED_BACK
        assert record.state is undone, call
        assert (bank.effects(), bank.effects(RESTORE)) == (1, 1), call
        assert record.attempts == 1, call


@by_protection
def test_who_was_taken_over_while_it_waited_tells_that_nothing_was_sent(
    protection: Protection,
) -> None:
    bank, bench = opened(protection)
    id = bench.approved(DEPOSIT, TEN)
    other = Store(bench.redis, bench.settings.namespace)

    def taken_over() -> None:
        lease_runs_out(bench, id)
        mine, bench.tally.store = bench.tally.store, other
        until_rest(bench, id)
        bench.tally.store = mine

    store = through(bench, id, 3, "reply lost", over=taken_over)
    assert store.struck == "move"
    sends_again = protection in {Protection.KEYED, Protection.VERSIONED, Protection.FENCED}
    assert bench.state(id) is (State.COMMITTED if sends_again else State.UNKNOWN)
    assert bank.effects() == int(sends_again)
    late = record_of(bench, id).last("late_evidence")
    assert late is not None
    assert late.evidence["withheld"] is True


class OnItsWay(Store):
    """A store that is told one intent late: after the worker has looked whether it is there."""

    on_its_way: Callable[[], object] | None = None

    def _script(self, name: str, keys: Any, args: Any, **given: Any) -> Any:
        script = super()._script
        if name == "move" and self.on_its_way is None and is_intent(args):
            self.on_its_way = lambda: script(name, keys, args, **given)
            raise StoreUnavailable(url="redis", problem="timed out")
        answer = script(name, keys, args, **given)
        if name == "read" and self.on_its_way:
            arrives, self.on_its_way = self.on_its_way, lambda: None
            arrives()
        return answer


def is_intent(args: list[Any]) -> bool:
    return json.loads(args[2])["evidence"]["event"] in {"intent", "undo"}


@by_protection
@pytest.mark.parametrize("wrong", [False, True], ids=["the effect", "the undo"])
def test_an_intent_that_comes_late_is_withheld_with_what_was_said_before(
    protection: Protection, wrong: bool
) -> None:
    bank, bench = opened(protection, rollback=InBand("undo"))
    id = bench.approved(DEPOSIT, TEN)
    if wrong:
        bank.troubles.append(Trouble.LANDS_WRONG)
        bench.crash(id, "after_rollback_intent")
        lease_runs_out(bench, id)
    bench.tally.store = OnItsWay(bench.redis, bench.settings.namespace)
    bench.run(id)
    assert bench.events(id)[-2:] == ["undo" if wrong else "intent", "withheld"]
    assert record_of(bench, id).attempts == int(wrong)
    record = until_rest(bench, id)
    undone = State.ROLLBACK_FAILED if protection is Protection.BLIND else State.ROLLED_BACK
    assert record.state is (undone if wrong else State.COMMITTED)
    assert (bank.effects(), bank.effects(RESTORE)) == (1, int(wrong))


def test_an_action_that_was_cancelled_meanwhile_stays_so() -> None:
    bank, bench = opened("readable")
    id = bench.approved(DEPOSIT, TEN)
    through(bench, id, 3, "not sent", over=lambda: bench.tally.cancel(id, by="p"))
    assert bench.state(id) is State.CANCELLED
    assert (bench.events(id)[-1], bank.calls, bench.alerts()) == ("cancelled", [], [])


def test_an_action_that_was_halted_meanwhile_is_told_that_nothing_was_sent() -> None:
    _, bench = opened("readable")
    id = bench.approved(DEPOSIT, TEN)
    healthy = bench.tally.store

    def halt() -> None:
        evidence = {"event": "rewound", "why": "x"}
        healthy.move(healthy.load(id), State.UNKNOWN, who="p", evidence=evidence, due_ms=-1)

    through(bench, id, 3, "not sent", over=halt)
    late = record_of(bench, id).last("late_evidence")
    assert late is not None
    assert late.evidence["withheld"] is True
    assert counters.FENCING_REJECTIONS not in healthy.snapshot().counters


def test_an_action_that_was_damaged_meanwhile_is_left_to_who_reads_it_next() -> None:
    bank, bench = opened("readable")
    id = bench.approved(DEPOSIT, TEN)
    key = bench.tally.store.keys.action(id)
    through(bench, id, 3, "not sent", over=lambda: redis_of(bench).hset(key, "content", "{}"))
    assert bench.run(id).state is State.CORRUPT
    assert bank.calls == []


def test_an_action_that_was_let_go_can_be_withdrawn() -> None:
    bank, bench = opened("readable")
    id = bench.approved(DEPOSIT, TEN)
    through(bench, id, 3, "reply lost")
    assert bench.events(id)[-2:] == ["intent", "withheld"]
    assert bench.tally.cancel(id, by="producer").state is State.CANCELLED
    until_rest(bench, id)
    assert bank.calls == []


def test_an_intent_that_is_withheld_again_and_again_is_offered_ever_more_slowly() -> None:
    bank, bench = opened("readable")
    id = bench.approved(DEPOSIT, TEN)
    pauses = []
    for _ in range(6):
        through(bench, id, 3, "not replicated")
        due: Any = bench.redis.zscore(bench.tally.store.keys.due, id)
        pauses.append(round((due - record_of(bench, id).at) / 1000))
    assert pauses == [1, 5, 15, 60, 300, 300]
    assert record_of(bench, id).attempts == 0
    assert bank.calls == []
    assert until_rest(bench, id).state is State.COMMITTED


def test_a_withheld_intent_is_not_counted_as_another_approval() -> None:
    _, bench = opened("readable")
    id = bench.approved(DEPOSIT, TEN)
    through(bench, id, 3, "reply lost")
    until_rest(bench, id)
    assert bench.tally.store.snapshot().counters["decisions|approved"] == 1
