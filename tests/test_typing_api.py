"""The public surface as its users type it: `mypy --strict` reads this file, and it also runs."""

import inspect
from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, assert_type

import pytest
from pydantic import BaseModel

import tallystick
from tallystick import (
    Action,
    ActionRecord,
    Compensate,
    Context,
    InBand,
    Irreversible,
    JournalEntry,
    NotApplied,
    OutOfBand,
    Policy,
    Protection,
    Settings,
    StaleFence,
    State,
    Tallystick,
    TallystickError,
    Verdict,
    action,
)
from tallystick.rollback import Rollback
from tallystick.testing import Bench

BALANCES: dict[str, Decimal] = {}


class Deposit(Action):
    """The class form."""

    name = "typed.deposit"
    version = 2
    protection = "readable"
    policy = Policy(quorum=2, proposer_may_approve=False, expires_after=timedelta(hours=1))
    rollback = InBand("undo")

    class Params(BaseModel):
        account: str
        amount: Decimal

    def observe(self, params: Params) -> dict[str, str]:
        return {"balance": str(BALANCES.get(params.account, Decimal(0)))}

    def execute(self, params: Params, context: Context) -> str:
        assert_type(context.idempotency_key, str)
        assert_type(context.fencing_token, int)
        assert_type(context.attempt, int)
        assert_type(context.remaining(), float)
        if params.amount <= 0:
            raise NotApplied("an amount is positive")
        BALANCES[params.account] = BALANCES.get(params.account, Decimal(0)) + params.amount
        return context.idempotency_key

    def verify(
        self, params: Params, before: dict[str, str], now: dict[str, str], result: str | None
    ) -> Verdict:
        expected = Decimal(before["balance"]) + params.amount
        return Verdict.equal(expected=expected, observed=now["balance"])

    def undo(
        self, params: Params, before: dict[str, str], result: str | None, context: Context
    ) -> None:
        BALANCES[params.account] = Decimal(before["balance"])


NOTES: list[str] = []


def noted(params: BaseModel, before: Any, now: Any, result: Any) -> Verdict:
    return Verdict.holds(observed=now) if NOTES else Verdict.inconclusive(reason="none")


def seen(params: BaseModel) -> list[str]:
    return list(NOTES)


@action(
    "typed.note",
    rollback=OutOfBand("docs/notes.md"),
    observe=seen,
    verify=noted,
    version=1,
    policy=Policy(),
)
def note(text: str, context: Context, times: int = 1) -> int:
    """The decorator form."""
    assert_type(context, Context)
    NOTES.extend([text] * times)
    return len(NOTES)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    BALANCES.clear()
    NOTES.clear()


def test_the_class_form_is_typed_and_runs() -> None:
    bench = Bench(Deposit)
    id = bench.approved("typed.deposit", Deposit.Params(account="alice", amount=Decimal(5)))
    assert bench.run(id).state is State.COMMITTED
    assert BALANCES["alice"] == Decimal(5)


def test_the_class_form_undoes_with_its_typed_method() -> None:
    bench = Bench(Deposit)
    refused = bench.approved("typed.deposit", {"account": "alice", "amount": "-5"})
    assert bench.run(refused).state is State.FAILED
    assert BALANCES == {}


def test_the_decorator_form_is_typed_and_runs() -> None:
    assert_type(note, type[Action])
    bench = Bench(note)
    id = bench.approved("typed.note", {"text": "hello", "times": 2})
    assert bench.run(id).state is State.COMMITTED
    assert NOTES == ["hello", "hello"]


def use(tally: Tallystick) -> ActionRecord:
    """Every verb of the service with the types that callers rely on."""
    found = tally.propose("typed.note", {"text": "a"}, key="k", by="paula", reason="because")
    assert_type(found, ActionRecord)
    assert_type(tally.approve(found.id, by="anna", answer=None), ActionRecord)
    assert_type(tally.get(found.id), ActionRecord)
    assert_type(tally.list(State.APPROVED, attention=False, limit=5), Sequence[ActionRecord])
    assert_type(tally.history(found.id), Sequence[JournalEntry])
    other = tally.propose("typed.note", {"text": "b"}, key="l", by="paula")
    assert_type(tally.cancel(other.id, by="paula", reason="not needed"), ActionRecord)
    third = tally.propose("typed.note", {"text": "c"}, key="m", by="paula")
    assert_type(tally.reject(third.id, by="anna", reason="no"), ActionRecord)
    assert_type(tally.wait(third.id, timeout=1.0), ActionRecord)
    return tally.get(found.id)


def test_the_verbs_of_the_service_are_typed_and_run() -> None:
    assert use(Bench(note).tally).state is State.APPROVED


def test_a_record_has_typed_fields() -> None:
    record = use(Bench(note).tally)
    assert_type(record.id, str)
    assert_type(record.state, State)
    assert_type(record.version, int)
    assert_type(record.params, dict[str, Any])
    assert_type(record.policy, dict[str, Any])
    assert_type(record.challenge, str | None)
    assert_type(record.verdict, dict[str, Any] | None)
    assert_type(record.attempts, int)
    assert_type(record.leased, bool)
    assert_type(record.compensates, str | None)
    assert_type([approval.who for approval in record.approvals], list[str])
    assert [approval.who for approval in record.approvals] == ["anna"]
    assert (record.action, record.version, record.key) == ("typed.note", 1, "k")
    assert ActionRecord.model_validate_json(record.model_dump_json()) == record


def test_a_record_is_frozen() -> None:
    record = use(Bench(note).tally)
    with pytest.raises(ValueError, match="frozen"):
        record.state = State.COMMITTED  # type: ignore[misc]


def opens(actions: Iterable[str] = ()) -> Tallystick:
    """As a caller writes it; only the type checker comes here."""
    with Tallystick.from_settings(Settings.load(namespace="stage"), actions=actions) as tally:
        assert_type(tally, Tallystick)
    return Tallystick.from_settings()


def test_a_service_is_opened_from_settings_and_names_of_modules() -> None:
    takes = inspect.signature(Tallystick.from_settings).parameters
    assert list(takes) == ["settings", "actions"]
    assert [takes[name].default for name in takes] == [None, None]
    assert takes["actions"].kind is inspect.Parameter.KEYWORD_ONLY
    assert callable(opens)


def test_the_four_rollbacks_are_one_type() -> None:
    def answer(params: BaseModel) -> str:
        return "yes"

    def back(params: Any, before: Any, result: Any) -> dict[str, int]:
        return {"x": 1}

    four: list[Rollback] = [
        InBand("undo"),
        Compensate("typed.undo", back),
        OutOfBand("docs/runbook.md"),
        Irreversible("gone is gone", challenge=answer),
    ]
    assert len({type(one) for one in four}) == 4


def test_errors_of_targets_are_made_of_one_typed_fact() -> None:
    assert isinstance(NotApplied("closed"), TallystickError)
    assert isinstance(StaleFence(3), TallystickError)
    assert_type(StaleFence(3).facts, dict[str, Any])


def test_a_protection_is_a_word_or_its_constant() -> None:
    assert_type(Protection.KEYED, Protection)  # type: ignore[assert-type]
    assert Protection("keyed") is Protection.KEYED


def test_a_verdict_is_not_a_boolean() -> None:
    with pytest.raises(TypeError, match="three answers"):
        bool(Verdict.holds())


def test_everything_public_is_there_and_sorted() -> None:
    assert sorted(tallystick.__all__) == tallystick.__all__
    assert [name for name in tallystick.__all__ if not hasattr(tallystick, name)] == []
    assert tallystick.__version__


def test_types_are_shipped() -> None:
    from importlib.resources import files

    assert (files("tallystick") / "py.typed").is_file()
