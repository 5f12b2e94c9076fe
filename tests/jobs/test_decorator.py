"""The short form: one function, and what it needs beside it, become an action type."""

from decimal import Decimal
from typing import Any

import pytest

from tallystick import Action, Context, InBand, Policy, Protection, State, Verdict, action
from tallystick.core.errors import InvalidActionType, InvalidInput
from tallystick.jobs.action import protection_of
from tallystick.testing import Bench
from tests.driving import nothing_stored
from tests.targets import BY_HAND, TWO, Bank, Trouble

SET = "bank.set"


def undo(params: Any, before: Any, result: Any, context: Context) -> None:
    """A plain function: it finds its bank through the parameters' account."""
    BANKS[params.account].restore(params.account, Decimal(before["balance"]), context)


BANKS: dict[str, Bank] = {}


def short(bank: Bank, **given: Any) -> type[Action]:
    """A deposit in the short form."""
    BANKS["alice"] = bank

    def observe(params: Any) -> Any:
        return bank.read(params.account)

    def verify(params: Any, before: Any, now: Any, result: Any) -> Verdict:
        expected = Decimal(before["balance"]) + params.amount
        return Verdict.equal(expected=expected, observed=now["balance"])

    told: dict[str, Any] = {"rollback": InBand(undo), "verify": verify, "observe": observe} | given

    @action(SET, **told)
    def pay(*, account: str = "alice", amount: Decimal, context: Context) -> dict[str, str]:
        """Pay into an account."""
        return bank.deposit(account, amount, context)

    return pay


def test_a_function_becomes_a_complete_type() -> None:
    kind = short(Bank())
    assert issubclass(kind, Action)
    assert (kind.name, kind.version) == (SET, 1)
    assert (kind.__name__, kind.__doc__) == ("pay", "Pay into an account.")
    assert kind.__module__ == __name__
    assert protection_of(kind()) is Protection.READABLE
    assert list(kind.Params.model_fields) == ["account", "amount"]


def test_it_runs_from_the_proposal_to_the_proof() -> None:
    bank = Bank()
    bench = Bench(short(bank))
    id = bench.approved(SET, {"account": "alice", "amount": "10"})
    found = bench.run(id)
    assert found.state is State.COMMITTED
    assert found.result == {"balance": "110"}
    assert (bank.balance(), len(bank.ledger)) == (Decimal(110), 1)


def test_the_function_gets_the_context_of_its_attempt() -> None:
    bank = Bank()
    bench = Bench(short(bank))
    id = bench.approved(SET, {"amount": 10}, key="invoice-7")
    bench.run(id)
    assert [(done.key, done.token) for done in bank.ledger] == [("invoice-7", 1)]


def holds(params: Any, before: Any, now: Any, result: Any) -> Verdict:
    return Verdict.holds()


def test_a_function_that_asks_for_no_context_gets_none() -> None:
    seen: list[int] = []

    @action("tick", rollback=BY_HAND, verify=holds)
    def tick(count: int = 1) -> None:
        seen.append(count)

    bench = Bench(tick)
    assert bench.run(bench.approved("tick", {})).state is State.COMMITTED
    assert seen == [1]


def test_defaults_are_part_of_what_is_approved() -> None:
    bench = Bench(short(Bank()))
    assert bench.propose(SET, {"amount": 1}).params == {"account": "alice", "amount": "1"}


def test_a_default_and_the_same_value_given_are_one_request() -> None:
    bench = Bench(short(Bank()))
    one = bench.propose(SET, {"amount": 1}, key="k")
    assert bench.propose(SET, {"account": "alice", "amount": "1"}, key="k").id == one.id


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"amount": 1, "currency": "EUR"}, "params.currency"),
        ({"amount": 1, "context": None}, "params.context"),
        ({"account": "alice"}, "params.amount"),
        ({"amount": "ten"}, "params.amount"),
    ],
    ids=["extra", "context", "missing", "unfit"],
)
def test_parameters_that_the_function_does_not_take_are_refused(
    params: dict[str, Any], field: str
) -> None:
    bench = Bench(short(Bank()))
    with (
        nothing_stored(bench),
        pytest.raises(InvalidInput, match=r"account: str \(optional\), amount: Decimal") as raised,
    ):
        bench.propose(SET, params)
    assert raised.value.facts["field"] == field


def test_an_undo_that_is_a_plain_function_undoes() -> None:
    bank = Bank(troubles=[Trouble.LANDS_WRONG])
    bench = Bench(short(bank))
    found = bench.run(bench.approved(SET, {"amount": 10}))
    assert found.state is State.ROLLED_BACK
    assert bank.balance() == 100


def test_an_undo_that_takes_something_else_is_refused() -> None:
    with pytest.raises(InvalidActionType, match="takes \\(params, before, result, context\\)"):
        Bench(short(Bank(), rollback=InBand(lambda params: None)))


def test_an_undo_by_name_has_no_class_body_to_be_found_in() -> None:
    with pytest.raises(InvalidActionType, match="InBand undo 'undo'"):
        Bench(short(Bank(), rollback=InBand("undo")))


def test_a_precondition_of_its_own_decides_whether_the_world_has_moved_on() -> None:
    def covered(params: Any, approved: Any, now: Any) -> Verdict:
        """The account still covers it."""
        if Decimal(now["balance"]) >= params.amount:
            return Verdict.holds()
        return Verdict.fails(expected=params.amount, observed=now["balance"])

    bank = Bank()
    bench = Bench(short(bank, precondition=covered))
    richer = bench.propose(SET, {"amount": 10})
    assert richer.precondition == "The account still covers it."
    bench.tally.approve(richer.id, by="anna")
    poorer = bench.approved(SET, {"amount": 20})

    bank.meddle(amount=7)
    assert bench.run(richer.id).state is State.COMMITTED
    bank.meddle(amount=-110)
    assert bench.run(poorer).state is State.PRECONDITION_FAILED
    assert len(bank.ledger) == 1


def test_without_a_way_to_look_it_is_blind() -> None:
    bank = Bank()

    def said(params: Any, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.holds() if result else Verdict.inconclusive(reason="no answer")

    bench = Bench(short(bank, observe=None, verify=said, rollback=BY_HAND))
    found = bench.propose(SET, {"amount": 10})
    assert (found.protection, found.observed) == ("blind", None)
    bench.tally.approve(found.id, by="anna")
    assert bench.run(found.id).state is State.COMMITTED


def test_policy_version_and_protection_are_taken_over() -> None:
    bank = Bank(Protection.KEYED)
    bench = Bench(short(bank, policy=TWO, version=3, protection="keyed"))
    found = bench.propose(SET, {"amount": 10})
    assert (found.version, found.protection) == (3, "keyed")
    assert Policy.from_json(found.policy) == TWO


def test_a_protection_that_the_short_form_cannot_keep_is_refused() -> None:
    with pytest.raises(InvalidActionType, match="cannot raise the fence"):
        Bench(short(Bank(), protection="fenced"))


@pytest.mark.parametrize("kind", ["keywords", "positional", "positional-only"])
def test_a_function_that_cannot_be_called_by_field_names_is_refused(kind: str) -> None:
    """Otherwise it is approved, and breaks after its intent is stored."""

    def keywords(**given: Any) -> None: ...
    def positional(*given: Any) -> None: ...
    def only(given: Any, /) -> None: ...

    functions: dict[str, Any] = {
        "keywords": keywords,
        "positional": positional,
        "positional-only": only,
    }
    with pytest.raises((InvalidActionType, TypeError)):
        Bench(action("note", rollback=BY_HAND, verify=holds)(functions[kind]))
