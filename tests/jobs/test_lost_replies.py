"""A step is stored, its reply is lost, and more happens before it is asked for again.

Whoever repeats the step finds it done. That is no proof that the action is still theirs, nor that
the replicas have it.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tallystick import InBand, Protection, State
from tallystick.core.errors import LeaseLost, NotReplicated, StoreUnavailable
from tallystick.jobs.giving_up import MAX_DEATHS
from tallystick.jobs.record import Record
from tallystick.jobs.store import Store
from tallystick.testing import Bench
from tests.driving import TEN, lease_runs_out, opened, record_of, redis_of, without_replicas
from tests.targets import DEPOSIT, RESTORE, Trouble

by_protection = pytest.mark.parametrize("protection", Protection)


class Forgetful(Store):
    """Stores one event, hears nothing of it, and stores it again after `meanwhile`."""

    event = ""
    meanwhile: Callable[[], object]
    told = False

    def _script(self, name: str, keys: Any, args: Any, **given: Any) -> Any:
        answer = super()._script(name, keys, args, **given)
        if name == "move" and not self.told and self.event == event_of(args):
            self.told = True
            self.meanwhile()
            answer = super()._script(name, keys, args, **given)
        return answer


def event_of(args: list[Any]) -> str:
    return str(json.loads(args[2])["evidence"]["event"])


def forgetful(bench: Bench, event: str, meanwhile: Callable[[], object]) -> Forgetful:
    store = Forgetful(bench.redis, bench.settings.namespace)
    store.event, store.meanwhile = event, meanwhile
    return store


def taken_over(bench: Bench, id: str, event: str) -> None:
    """Run it with a worker that is frozen before it repeats this step, so long that another one
    claims the action, and holds it."""
    mine = bench.tally.store
    other = Store(bench.redis, bench.settings.namespace)

    def overtaken() -> None:
        lease_runs_out(bench, id)
        other.claim(other.load(id), worker="other", lease_ms=60_000)

    bench.tally.store = forgetful(bench, event, overtaken)
    bench.run(id)
    bench.tally.store = mine


def all_that_came_after(bench: Bench, id: str) -> set[str]:
    """What was written after the other worker had claimed it."""
    lines = record_of(bench, id).lines
    claim = max(at for at, line in enumerate(lines) if line.who == "other")
    return {line.event for line in lines[claim + 1 :]}


@by_protection
@pytest.mark.parametrize(("event", "sent"), [("claimed", 0), ("intent", 0), ("replied", 1)])
def test_who_was_taken_over_meanwhile_acts_no_more(
    protection: Protection, event: str, sent: int
) -> None:
    bank, bench = opened(protection)
    id = bench.approved(DEPOSIT, TEN)
    taken_over(bench, id, event)
    assert len(bank.calls) == sent
    assert all_that_came_after(bench, id) <= {"late_evidence"}


@by_protection
@pytest.mark.parametrize(("event", "undone"), [("refuted", 0), ("undo", 0), ("undone", 1)])
def test_who_was_taken_over_meanwhile_undoes_no_more(
    protection: Protection, event: str, undone: int
) -> None:
    bank, bench = opened(protection, rollback=InBand("undo"))
    bank.troubles.append(Trouble.LANDS_WRONG)
    id = bench.approved(DEPOSIT, TEN)
    taken_over(bench, id, event)
    assert bank.effects(RESTORE) == undone
    assert all_that_came_after(bench, id) <= {"late_evidence"}


def test_who_had_let_it_go_hears_where_it_left_it() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bank.unreadable = True
    taken_over(bench, id, "looked")
    assert all_that_came_after(bench, id) == set()
    assert record_of(bench, id).state is State.APPROVED


def test_whose_action_was_halted_meanwhile_sends_nothing() -> None:
    """After a rewind its parent halts it, and leaves the claim as it is."""
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    healthy = bench.tally.store

    def halted() -> None:
        evidence = {"event": "rewound", "why": "x"}
        healthy.move(healthy.load(id), State.UNKNOWN, who="p", evidence=evidence, due_ms=-1)

    bench.tally.store = forgetful(bench, "intent", halted)
    assert bench.run(id).state is State.UNKNOWN
    assert bank.calls == []


class Deaf(Store):
    """Stores a claim and hears nothing of it, however often it asks."""

    deaf = True

    def _script(self, name: str, keys: Any, args: Any, **given: Any) -> Any:
        answer = super()._script(name, keys, args, **given)
        if name == "move" and self.deaf and event_of(args) == "claimed":
            raise StoreUnavailable(url="redis", problem="timed out")
        return answer


def test_who_claims_and_hears_nothing_of_it_says_so_and_is_not_taken_for_dead() -> None:
    """A store that is too slow to answer: its workers live."""
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    healthy, bench.tally.store = bench.tally.store, Deaf(bench.redis, bench.settings.namespace)
    for _ in range(MAX_DEATHS):
        assert bench.run(id).state is State.APPROVED
    assert bench.events(id)[-2:] == ["claimed", "withheld"]
    bench.tally.store = healthy
    assert record_of(bench, id).owner == ""
    assert bench.run(id).state is State.COMMITTED


def test_who_hears_nothing_of_its_claim_on_a_store_that_was_emptied_goes_on() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)

    class Emptied(Deaf):
        def load(self, id: str) -> Record:
            redis_of(bench).flushall()
            return super().load(id)

    bench.tally.store = Emptied(bench.redis, bench.settings.namespace)
    assert bench._runner().run(id) is State.APPROVED, "as it was when it was read"
    assert bench.tally.store.ids() == []


def test_who_hears_nothing_of_its_claim_leaves_that_of_its_successor_alone() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    healthy = bench.tally.store

    class Slow(Deaf):
        def _script(self, name: str, keys: Any, args: Any, **given: Any) -> Any:
            try:
                return super()._script(name, keys, args, **given)
            except StoreUnavailable:
                self.deaf = False
                lease_runs_out(bench, id)
                healthy.claim(healthy.load(id), worker="other", lease_ms=60_000)
                raise

    bench.tally.store = Slow(bench.redis, bench.settings.namespace)
    bench.run(id)
    assert all_that_came_after(bench, id) == set()


def test_a_further_token_of_an_action_that_was_halted_meanwhile_is_none() -> None:
    _, bench = opened("fenced")
    id = bench.approved(DEPOSIT, TEN)
    healthy = bench.tally.store
    held = healthy.claim(healthy.load(id), worker="w", lease_ms=60_000)

    def halted() -> None:
        evidence = {"event": "rewound", "why": "x"}
        healthy.move(healthy.load(id), State.UNKNOWN, who="p", evidence=evidence, due_ms=-1)

    store = forgetful(bench, "claimed", halted)
    with pytest.raises(LeaseLost):
        store.claim(held, worker="w", lease_ms=60_000, again=True)


def test_a_vote_that_was_acted_on_meanwhile_is_told_as_it_is_now() -> None:
    _, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    healthy = bench.tally.store

    def carried_out() -> None:
        mine, bench.tally.store = bench.tally.store, healthy
        bench.run(id)
        bench.tally.store = mine

    bench.tally.store = forgetful(bench, "vote", carried_out)
    assert bench.tally.approve(id, by="approver").state is State.COMMITTED


# --- with replicas -------------------------------------------------------------------------------


def test_an_intent_under_a_note_is_settled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    without_replicas(monkeypatch)
    _, bench = opened()
    healthy = bench.tally.store
    id = bench.approved(DEPOSIT, TEN)
    held = healthy.claim(healthy.load(id), worker="w", lease_ms=60_000)
    evidence = {"event": "intent", "before": None}

    def intend(store: Store) -> None:
        store.move(
            held, State.RUNNING, who="w", worker="w", evidence=evidence, lease="hold", lease_ms=9000
        )

    intend(healthy)
    bench.tally.acknowledge(id, by="somebody")
    with pytest.raises(NotReplicated):
        intend(Store(bench.redis, bench.settings.namespace, replicas=1))
    assert bench.events(id)[-2:] == ["intent", "acknowledged"]


def test_a_stop_is_settled_when_its_reply_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    without_replicas(monkeypatch)
    _, bench = opened()
    bench.tally.store = Store(bench.redis, bench.settings.namespace, replicas=1)
    script = Store._script

    def repeated(store: Store, name: str, keys: Any, args: Any, **given: Any) -> Any:
        if name == "stop":
            script(store, name, keys, args)
        return script(store, name, keys, args, **given)

    monkeypatch.setattr(Store, "_script", repeated)
    with pytest.raises(NotReplicated):
        bench.tally.stop(by="oncall", reason="x")
    assert len(bench.tally.store.operations()) == 1


def test_the_resolution_of_a_corrupt_action_is_settled_when_it_is_said_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_replicas(monkeypatch)
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    redis_of(bench).hset(bench.tally.store.keys.action(id), "content", "{}")
    assert bench.run(id).state is State.CORRUPT
    bench.tally.store = Store(bench.redis, bench.settings.namespace, replicas=1)
    for _ in range(2):
        with pytest.raises(NotReplicated):
            bench.tally.resolve(id, to="abandoned", by="oncall", evidence="looked")
    assert bench.state(id) is State.ABANDONED


def test_a_claim_that_is_repeated_under_a_note_is_still_a_claim() -> None:
    _, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    store = forgetful(bench, "claimed", lambda: bench.tally.acknowledge(id, by="somebody"))
    assert store.claim(store.load(id), worker="w", lease_ms=60_000).owner
    with pytest.raises(LeaseLost):
        store.claim(store.load(id), worker="v", lease_ms=60_000)
