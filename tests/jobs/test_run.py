"""One action in a worker's hands: what a type of a team's own may do to it, and what it may not.

However a type behaves, its action comes to rest in a state that is true, or waits for one that is
known; no exception of a type leaves the run.
"""

import logging
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic import Field, field_validator

from tallystick import Context, NotApplied, StaleFence, State, Verdict
from tallystick.core.errors import UnknownId
from tallystick.jobs.run import Runner
from tallystick.metrics.counters import unknown_type
from tallystick.testing import Bench
from tests.driving import (
    TEN,
    Clock,
    alerts,
    lease_runs_out,
    nothing_stored,
    opened,
    record_of,
    redis_of,
    until_rest,
)
from tests.targets import BY_HAND, DEPOSIT, Bank, Order, Trouble, deposit, with_method

Method = Callable[..., Any]


def odd(name: str, method: Method, protection: str = "readable") -> tuple[Bank, Bench]:
    """A deposit of which one method is somebody else's idea."""
    bank, _ = opened(protection)
    return bank, Bench(with_method(deposit(bank), name, method))


def after_depositing(what: Callable[[], Any]) -> Method:
    """An `execute` that does its deposit and then this."""

    def execute(self: Any, params: Any, context: Context) -> Any:
        self.bank.deposit(params.account, params.amount, context)
        return what()

    return execute


def raising(error: BaseException) -> Callable[..., Any]:
    def raise_it(*args: Any) -> Any:
        raise error

    return raise_it


# --- what execute may answer ---------------------------------------------------------------------


ODD_ANSWERS: dict[str, Any] = {
    "object": object(),
    "nan": float("nan"),
    "set": {1, 2},
    "bytes": b"\xff",
    "big": 2**70,
    "control": "\x1b[31m",
    "half": "\ud800",
    "keys": {5: 1},
    "long": "x" * 200_000,
    "exception": ValueError("\x00"),
    "class": Bank,
}


@pytest.mark.parametrize("name", sorted(ODD_ANSWERS))
def test_an_answer_that_cannot_be_stored_is_described(name: str) -> None:
    bank, bench = odd("execute", after_depositing(lambda: ODD_ANSWERS[name]))
    found = bench.run(bench.approved(DEPOSIT, TEN))
    assert found.state is State.COMMITTED
    assert bank.effects() == 1


@pytest.mark.parametrize("depth", range(28, 36))
def test_an_answer_of_any_depth_is_stored_or_described(depth: int) -> None:
    answer: Any = 1
    for _ in range(depth):
        answer = [answer]
    bank, bench = odd("execute", after_depositing(lambda: answer))
    assert bench.run(bench.approved(DEPOSIT, TEN)).state is State.COMMITTED
    assert bank.effects() == 1


ERRORS: dict[str, Callable[[], Exception]] = {
    "plain": lambda: RuntimeError("no"),
    "control": lambda: RuntimeError("\x1b[31mred\x00"),
    "half": lambda: RuntimeError("\udcff"),
    "long": lambda: RuntimeError("x" * 100_000),
    "empty": RuntimeError,
    "ours": lambda: UnknownId(id="x"),
    "assertion": AssertionError,
    "stop": StopIteration,
    "timeout": TimeoutError,
}


@pytest.fixture
def unlogged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a character cannot be sent on by pytest-xdist, and our log shows what was raised."""
    monkeypatch.setattr(logging.getLogger("tallystick.run"), "disabled", True)


@pytest.mark.usefixtures("unlogged")
@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_after_the_effect_is_no_answer_and_the_target_is_looked_at(name: str) -> None:
    bank, bench = odd("execute", after_depositing(raising(ERRORS[name]())))
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is State.COMMITTED
    assert record_of(bench, id).fact("replied", "reply") == "unclear"
    assert bank.effects() == 1


@pytest.mark.parametrize("words", ["closed", "\x1b[31mclosed\x00", "\udcff", "x" * 10_000, ""])
def test_a_refusal_in_any_words_is_a_refusal(words: str) -> None:
    bank, bench = odd("execute", raising(NotApplied(words)))
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is State.FAILED
    assert alerts(bench, id) == ["not_applied"]
    assert bank.effects() == 0


def test_a_refusal_by_a_target_that_did_it_all_the_same_is_not_believed() -> None:
    bank, bench = odd("execute", after_depositing(raising(NotApplied("no"))))
    assert bench.run(bench.approved(DEPOSIT, TEN)).state is State.COMMITTED
    assert bank.effects() == 1


def test_a_refusal_is_not_undone_if_somebody_else_moved_the_target_meanwhile() -> None:
    """The usual end of a lost race at a target that compares versions: nothing of ours is there."""

    def execute(self: Any, params: Any, context: Context) -> Any:
        self.bank.meddle(amount=7)
        return self.bank.deposit(params.account, params.amount, context)

    bank, bench = odd("execute", execute, "versioned")
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state in {State.FAILED, State.UNKNOWN}
    assert len(bank.calls) == 1
    assert bank.balance() == 107


# --- what verify, observe and precondition may do ------------------------------------------------


@pytest.mark.parametrize("answer", [None, True, False, "holds", {}], ids=repr)
def test_a_verify_that_returns_no_verdict_proves_nothing(answer: Any) -> None:
    bank, bench = odd("verify", lambda self, params, before, now, result: answer)
    id = bench.approved(DEPOSIT, TEN)
    assert until_rest(bench, id).state is State.UNKNOWN
    assert bank.effects() == 1


@pytest.mark.parametrize("answer", [None, True, "holds"], ids=repr)
def test_a_precondition_that_returns_no_verdict_lets_nothing_run(answer: Any) -> None:
    bank, bench = odd("precondition", lambda self, params, approved, now: answer)
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state in {State.APPROVED, State.PRECONDITION_FAILED, State.UNKNOWN}
    assert bank.calls == []


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_a_verify_that_raises_proves_nothing(name: str) -> None:
    bank, bench = odd("verify", raising(ERRORS[name]()))
    id = bench.approved(DEPOSIT, TEN)
    found = bench.run(id)
    assert found.state is State.UNKNOWN
    assert found.verdict
    assert found.verdict["answer"] == "inconclusive"
    assert bank.effects() == 1


def test_a_reason_with_control_characters_is_no_reason_to_lose_the_verdict() -> None:
    verdict = Verdict.inconclusive(reason="\x1b[31m\x00")
    bank, bench = odd("verify", lambda self, params, before, now, result: verdict)
    assert bench.run(bench.approved(DEPOSIT, TEN)).state is State.UNKNOWN
    assert bank.effects() == 1


def test_an_unreadable_target_is_looked_at_again_ever_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    bank.unreadable = True
    waits = []
    for _ in range(7):
        assert bench.run(id).state is State.APPROVED
        record = record_of(bench, id)
        waits.append(redis_of(bench).zscore(bench.tally.store.keys.due, id) - record.at)
        clock.pass_by(seconds=400)
    assert waits == [1000, 5000, 15_000, 60_000, 300_000, 300_000, 300_000]
    bank.unreadable = False
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1


def test_an_undo_of_a_target_that_cannot_be_read_for_a_moment_is_not_given_up() -> None:
    """A verification polls until its deadline; one hiccup must not call a person at night."""
    bank = Bank(troubles=[Trouble.LANDS_WRONG])
    hiccups: list[str] = []

    def observe(self: Any, params: Any) -> Any:
        if hiccups:
            raise OSError(hiccups.pop())
        return bank.read(params.account)

    def hiccup(point: str) -> None:
        if point == "after_rollback_intent":
            hiccups.append("reset by peer")

    kind = with_method(deposit(bank), "observe", observe)
    bench = Bench(kind, verify_deadline_seconds=0.05)
    id = bench.approved(DEPOSIT, TEN)
    assert runner_of(bench, checkpoint=hiccup).run(id) is State.ROLLED_BACK


# --- what is polled ------------------------------------------------------------------------------


def test_an_effect_that_shows_late_is_waited_for() -> None:
    bank = Bank()
    seen: list[int] = []

    def observe(self: Any, params: Any) -> Any:
        seen.append(1)
        late = bank.effects() and len(seen) < 5
        return {"balance": 100} if late else bank.read(params.account)

    kind = with_method(deposit(bank), "observe", observe)
    bench = Bench(kind, verify_deadline_seconds=60)
    slept: list[float] = []
    id = bench.approved(DEPOSIT, TEN)
    runner_of(bench, sleep=slept.append).run(id)
    assert bench.state(id) is State.COMMITTED
    assert slept == sorted(slept)
    assert len(slept) == 2


def runner_of(bench: Bench, **given: Any) -> Runner:
    """A worker like the bench's own, with other parts."""
    tally = bench.tally
    return Runner(tally.store, tally.registry, tally.keyring, bench.settings, worker="w", **given)


# --- fences --------------------------------------------------------------------------------------


def test_a_worker_that_the_target_calls_stale_stops() -> None:
    bank, bench = odd("execute", raising(StaleFence(1)), "fenced")
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is State.RUNNING
    assert bank.effects() == 0


@pytest.mark.parametrize("name", ["plain", "control"])
def test_a_fence_that_raises_something_else_sends_nothing(name: str) -> None:
    bank, bench = odd("raise_fence", raising(ERRORS[name]()), "fenced")
    id = bench.approved(DEPOSIT, TEN)
    assert until_rest(bench, id).state in {State.UNKNOWN, State.FAILED}
    assert bank.calls == []


def test_the_fence_is_raised_and_read_before_anything_is_sent() -> None:
    bank, bench = opened("fenced")
    id = bench.approved(DEPOSIT, TEN)
    bench.crash(id, "before_effect")
    token = record_of(bench, id).token
    assert bank.fences["alice"] == token
    bench.run(id)
    assert [done.token for done in bank.ledger] == [bank.fences["alice"]]
    assert bank.fences["alice"] > token


# --- the target gets what it needs ---------------------------------------------------------------


def contexts(protection: str, *, troubles: list[Trouble]) -> list[Context]:
    """What each call of the target was given."""
    bank, _ = opened(protection)
    bank.troubles = list(troubles)
    given: list[Context] = []
    kind = deposit(bank)
    plain: Any = kind()

    def execute(self: Any, params: Any, context: Context) -> Any:
        given.append(context)
        return plain.execute(params, context)

    def undo(self: Any, params: Any, before: Any, result: Any, context: Context) -> Any:
        given.append(context)
        return plain.undo(params, before, result, context)

    bench = Bench(with_method(with_method(kind, "execute", execute), "undo", undo))
    bench.run(bench.approved(DEPOSIT, TEN, key="k"))
    return given


def test_every_attempt_has_the_same_key() -> None:
    first, second = contexts("keyed", troubles=[Trouble.BREAKS_BEFORE])
    assert first.idempotency_key == second.idempotency_key == "k"
    assert (first.attempt, second.attempt) == (1, 2)


def test_the_undo_has_a_key_of_its_own() -> None:
    first, second = contexts("keyed", troubles=[Trouble.LANDS_WRONG])
    assert second.idempotency_key == f"tallystick:rollback:{first.action_id}"


def test_the_effect_is_conditional_on_the_approved_version() -> None:
    (only,) = contexts("versioned", troubles=[])
    assert only.expected_version == 1


def test_the_undo_is_conditional_on_the_version_that_our_effect_left() -> None:
    _, undo = contexts("versioned", troubles=[Trouble.LANDS_WRONG])
    assert undo.expected_version == 2


def test_a_deadline_is_shorter_than_the_lease() -> None:
    (only,) = contexts("readable", troubles=[])
    assert 0 < only.remaining() <= 10


# --- what this worker does not know --------------------------------------------------------------


def test_an_action_of_an_unknown_type_waits_for_a_worker_that_knows_it() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    known, bench.tally.registry = bench.tally.registry, type(bench.tally.registry)()
    assert bench.run(id).state is State.APPROVED
    assert redis_of(bench).zscore(bench.tally.store.keys.due, id) is not None
    bench.tally.registry = known
    assert bench.run(id).state is State.COMMITTED
    assert bank.effects() == 1


class Stricter(Order):
    """It was looser when it was approved."""

    amount: Decimal = Field(gt=1000)


class Broken(Order):
    """Its validator fails in a way that pydantic does not know."""

    @field_validator("amount")
    @classmethod
    def halve(cls, amount: Decimal) -> Decimal:
        raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    "change",
    [
        {"protection": "keyed"},
        {"version": 2},
        {"rollback": BY_HAND},
        {"Params": Stricter},
        {"Params": Broken},
    ],
    ids=str,
)
def test_code_that_is_not_what_was_approved_does_not_run_it(change: dict[str, Any]) -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    newer = Bench(deposit(bank, **change))
    newer.tally.store, newer.tally.keyring = bench.tally.store, bench.tally.keyring
    assert newer.run(id).state is State.APPROVED
    assert bench.tally.store.snapshot().counters[unknown_type(DEPOSIT)] == 1
    assert bank.calls == []


def test_a_wake_up_for_what_does_not_exist_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    _, bench = opened()
    redis_of(bench).zadd(bench.tally.store.keys.due, {"0123456789abcdef": 1})
    with caplog.at_level(logging.WARNING):
        assert runner_of(bench).run("0123456789abcdef") is None
    assert "0123456789abcdef" in caplog.text
    assert redis_of(bench).zcard(bench.tally.store.keys.due) == 0


def test_a_wake_up_for_what_somebody_else_holds_changes_nothing() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)
    store = bench.tally.store
    store.claim(store.load(id), worker="w", lease_ms=60_000)
    with nothing_stored(bench):
        assert runner_of(bench).run(id) is State.APPROVED
    assert bank.calls == []


def test_a_wake_up_for_what_waits_changes_nothing() -> None:
    bank, bench = opened()
    id = bench.propose(DEPOSIT, TEN).id
    with nothing_stored(bench):
        assert runner_of(bench).run(id) is State.WAITING_FOR_APPROVAL
    assert bank.calls == []


# --- late ----------------------------------------------------------------------------------------


def test_a_late_result_is_only_evidence_and_calls_again() -> None:
    """The first worker is frozen in its effect; a second one has given the action to a person."""
    bank, bench = opened()
    kind = deposit(bank)
    plain: Any = kind()

    def execute(self: Any, params: Any, context: Context) -> Any:
        lease_runs_out(bench, context.action_id)
        assert bench.run(context.action_id).state is State.UNKNOWN
        return plain.execute(params, context)

    bench.tally.registry = Bench(with_method(kind, "execute", execute)).tally.registry
    id = bench.approved(DEPOSIT, TEN)

    assert runner_of(bench).run(id) is State.UNKNOWN

    assert bank.effects() == 1
    assert bench.events(id)[-2:] == ["halted", "late_evidence"]
    assert record_of(bench, id).fact("late_evidence", "reply") == "ok"
    assert alerts(bench, id) == ["outcome_unknown", "outcome_unknown"]


def test_a_worker_that_was_replaced_before_its_effect_sends_nothing() -> None:
    bank, bench = opened()
    id = bench.approved(DEPOSIT, TEN)

    def overtake(point: str) -> None:
        if point == "after_claim":
            lease_runs_out(bench, id)
            bench.run(id)

    runner_of(bench, checkpoint=overtake).run(id)
    assert bench.state(id) is State.COMMITTED
    assert bank.effects() == 1
