"""An action whose own code kills its workers comes to rest, and nothing of it is called again."""

from typing import Any

import pytest

from tallystick import OutOfBand, Protection, State
from tallystick.jobs.giving_up import MAX_DEATHS, note_death
from tallystick.testing import Bench
from tallystick.testing.bench import Crash
from tests.driving import TEN, alerts, lease_runs_out, record_of
from tests.targets import DEPOSIT, Bank, Trouble, deposit, with_method


class Deadly:
    """A bank's type, one method of which kills whoever calls it as long as it is `armed`."""

    def __init__(self, method: str, **attributes: Any) -> None:
        self.bank = Bank()
        self.armed = False
        kind = deposit(self.bank, **attributes)

        def deadly(_: Any, *given: Any) -> Any:
            if self.armed:
                raise Crash(method)
            return getattr(kind(), method)(*given)

        self.bench = Bench(with_method(kind, method, deadly))
        self.id = self.bench.approved(DEPOSIT, TEN)
        self.armed = True

    def kill(self, times: int) -> None:
        """Let so many workers take it and die."""
        for _ in range(times):
            with pytest.raises(Crash):
                self.bench.run(self.id)
            lease_runs_out(self.bench, self.id)


@pytest.mark.parametrize(
    ("method", "deaths", "rule", "sent"),
    [
        ("observe", MAX_DEATHS, 10, "nothing was sent"),
        ("precondition", MAX_DEATHS, 10, "nothing was sent"),
        ("verify", MAX_DEATHS + 1, 20, "it may have happened"),
    ],
)
def test_after_so_many_deaths_a_person_is_called_and_no_method(
    method: str, deaths: int, rule: int, sent: str
) -> None:
    deadly = Deadly(method)
    deadly.kill(deaths)
    found = deadly.bench.run(deadly.id)
    assert (found.state, found.why) == (State.UNKNOWN, f"5 workers died over it; {sent}")
    assert record_of(deadly.bench, deadly.id).fact("halted", "rule") == rule
    assert alerts(deadly.bench, deadly.id) == ["outcome_unknown"]
    assert deadly.bank.effects() == (method == "verify")


def test_who_dies_before_the_claim_is_counted_by_its_parent() -> None:
    """Its code runs as soon as its parameters are read; only the parent sees where it died."""
    bench = Bench(deposit(Bank()))
    id = bench.approved(DEPOSIT, TEN)
    for horse in range(MAX_DEATHS):
        for _ in range(2):  # the reply to the first was lost
            note_death(bench.tally.store, id, worker=f"host:{horse}", how="signal")
        assert record_of(bench, id).deaths == horse + 1
    found = bench.run(id)
    assert (found.state, found.why) == (
        State.UNKNOWN,
        "5 workers died over it; nothing was sent",
    )
    assert bench.events(id)[-2:] == ["died", "halted"]
    assert alerts(bench, id) == ["outcome_unknown"]


def test_who_died_after_a_claim_that_it_did_not_hear_of_is_one() -> None:
    bench = Bench(deposit(Bank()))
    id = bench.approved(DEPOSIT, TEN)
    for horse in range(MAX_DEATHS):
        bench.tally.store.claim(record_of(bench, id), worker=f"host:{horse}", lease_ms=1000)
        lease_runs_out(bench, id)
        note_death(bench.tally.store, id, worker=f"host:{horse}", how="hang")
        assert record_of(bench, id).deaths == horse + 1


def test_nothing_is_noted_of_an_action_that_somebody_holds_or_that_is_over() -> None:
    bench = Bench(deposit(Bank()))
    store = bench.tally.store
    id = bench.approved(DEPOSIT, TEN)
    store.claim(record_of(bench, id), worker="w", lease_ms=1000)
    note_death(store, id, worker="parent", how="signal")
    lease_runs_out(bench, id)
    assert bench.run(id).state is State.COMMITTED
    note_death(store, id, worker="parent", how="signal")
    note_death(store, "0" * 16, worker="parent", how="signal")
    assert "died" not in bench.events(id)


def test_who_holds_it_now_is_let_live() -> None:
    deadly = Deadly("observe")
    deadly.kill(MAX_DEATHS - 1)
    store = deadly.bench.tally.store
    store.claim(record_of(deadly.bench, deadly.id), worker="w", lease_ms=60_000)
    assert deadly.bench.run(deadly.id).state is State.APPROVED


def test_a_runbook_is_named_where_it_is_given_up() -> None:
    deadly = Deadly("observe", rollback=OutOfBand("docs/fix.md"))
    deadly.kill(MAX_DEATHS)
    deadly.bench.run(deadly.id)
    assert record_of(deadly.bench, deadly.id).fact("halted", "runbook") == "docs/fix.md"


def test_an_undo_that_kills_ends_as_a_rollback_that_failed() -> None:
    deadly = Deadly("restored")
    deadly.bank.troubles = [Trouble.LANDS_WRONG]
    deadly.kill(MAX_DEATHS + 1)
    assert deadly.bench.run(deadly.id).state is State.ROLLBACK_FAILED
    assert alerts(deadly.bench, deadly.id) == ["verification_failed", "rollback_failed"]


def test_fewer_deaths_leave_it_to_the_next_worker() -> None:
    deadly = Deadly("observe")
    deadly.kill(MAX_DEATHS - 1)
    deadly.armed = False
    assert deadly.bench.run(deadly.id).state is State.COMMITTED


def test_what_kills_before_its_intent_can_be_cancelled_meanwhile() -> None:
    deadly = Deadly("observe")
    deadly.kill(1)
    assert deadly.bench.tally.cancel(deadly.id, by="producer").state is State.CANCELLED
    assert deadly.bench.run(deadly.id).state is State.CANCELLED
    assert deadly.bank.calls == []


def test_a_worker_that_drew_two_tokens_before_it_died_is_one() -> None:
    bench = Bench(deposit(Bank(Protection.FENCED)))
    store = bench.tally.store
    once = store.claim(record_of(bench, bench.approved(DEPOSIT, TEN)), worker="w", lease_ms=1000)
    assert store.claim(once, worker="w", lease_ms=1000, again=True).deaths == 1
    lease_runs_out(bench, once.id)
    assert store.claim(store.load(once.id), worker="v", lease_ms=1000).deaths == 2
