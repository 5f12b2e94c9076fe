"""Which action types a process knows: complete ones, by name and version, never by a path."""

import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from enum import StrEnum
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from tallystick import Action, Compensate, InBand, Irreversible, OutOfBand, State, Verdict, action
from tallystick.core.errors import ActionModuleError, InvalidActionType, InvalidInput, UnknownAction
from tallystick.jobs.action import Protection, protection_of
from tallystick.jobs.registry import Registry, validate
from tallystick.testing import Bench
from tests.driving import TEN
from tests.targets import BY_HAND, DEPOSIT, RESTORE, Bank, Readable, Trouble, deposit, made, restore


class Noop(Action):
    """A complete type, to take things away from."""

    name = "noop"
    rollback = BY_HAND

    class Params(BaseModel):
        text: str = ""

    def observe(self, params: Any) -> Any:
        return {}

    def execute(self, params: Any, context: Any) -> Any:
        return None

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.holds()


def variant(*gone: str, **attributes: Any) -> type[Action]:
    """The type above with other attributes, and without these methods."""
    body = {**{name: getattr(Action, name) for name in gone}, **attributes}
    return type("Variant", (Noop,), body)


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = ModuleType("tests_actions_of_the_moment")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


# --- what is registered --------------------------------------------------------------------------


def test_a_complete_type_is_found_by_name_and_version() -> None:
    newer = variant(version=2)
    registry = Registry([newer, Noop])
    assert type(registry.latest("noop")) is newer
    assert type(registry.find("noop", 1)) is Noop
    assert registry.find("noop", 3) is None
    assert registry.names() == {"noop"}
    assert [(spec.name, spec.version) for spec in registry] == [("noop", 1), ("noop", 2)]


def test_the_same_class_twice_is_once() -> None:
    assert len(list(Registry([Noop, Noop]))) == 1


def test_two_classes_of_one_name_and_version_are_refused() -> None:
    with pytest.raises(InvalidActionType, match=r"already defined by .*Noop.*another name"):
        Registry([Noop, variant()])


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownAction, match=r"'other'.*known are: noop"):
        Registry([Noop]).latest("other")
    with pytest.raises(UnknownAction, match="known are: none"):
        Registry().latest("other")


INCOMPLETE: list[tuple[tuple[str, ...], dict[str, Any], str]] = [
    ((), {"name": ""}, "name is not usable"),
    ((), {"name": "Bank.Transfer"}, "name is not usable"),
    ((), {"name": "a|b"}, "name is not usable"),
    ((), {"name": "a" * 101}, "name is not usable"),
    ((), {"name": 5}, "name is not usable"),
    ((), {"version": 0}, "version"),
    ((), {"version": "1"}, "version"),
    ((), {"rollback": None}, "it declares no rollback"),
    ((), {"rollback": "undo"}, "it declares no rollback"),
    ((), {"rollback": InBand}, "it declares no rollback"),
    ((), {"Params": None}, "it has no Params"),
    ((), {"Params": dict}, "it has no Params"),
    ((), {"protection": "magic"}, "'magic' is no protection"),
    (("execute",), {}, "no execute method"),
    (("verify",), {}, "no verify method"),
    (("observe",), {"protection": "readable"}, "readable but cannot be read"),
    (("observe",), {"protection": "keyed"}, "keyed but cannot be read"),
    ((), {"protection": "fenced"}, "fenced but cannot raise the fence"),
    ((), {"rollback": InBand("undo")}, "InBand undo 'undo'"),
    ((), {"rollback": InBand("undo"), "undo": lambda self, params: None}, "InBand undo"),
]


@pytest.mark.parametrize(
    ("gone", "attributes", "problem"), INCOMPLETE, ids=map(str, range(len(INCOMPLETE)))
)
def test_an_incomplete_type_is_refused_with_what_to_do(
    gone: tuple[str, ...], attributes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidActionType, match=problem) as raised:
        Registry([variant(*gone, **attributes)])
    assert len(str(raised.value.facts["remedy"])) > 10


def test_a_type_without_a_name_is_refused_by_its_class() -> None:
    nameless = type("Nameless", (Action,), {"rollback": BY_HAND})
    with pytest.raises(InvalidActionType, match="Nameless"):
        Registry([nameless])


def test_a_blind_type_that_can_be_read_is_refused_or_works() -> None:
    """It must not be accepted and then fail its precondition every time."""
    bank = Bank(Protection.BLIND)
    try:
        bench = Bench(made(Readable, bank))
    except InvalidActionType:
        return
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is not State.PRECONDITION_FAILED


def test_a_type_whose_constructor_needs_arguments_is_refused_by_name() -> None:
    def init(self: Any, engine: Any) -> None: ...

    with pytest.raises(InvalidActionType, match="noop"):
        Registry([variant(__init__=init)])


# --- what a type promises if it says nothing -----------------------------------------------------


def test_what_can_be_read_is_readable_and_what_cannot_is_blind() -> None:
    assert protection_of(Noop()) is Protection.READABLE
    assert protection_of(variant("observe")()) is Protection.BLIND


def test_a_blind_type_needs_no_verify() -> None:
    assert Registry([variant("observe", "verify")]).names() == {"noop"}


# --- the rollback plan ---------------------------------------------------------------------------


def test_the_plan_of_a_compensation_names_the_version_that_would_run() -> None:
    bank = Bank()
    undo = restore(bank, version=3)
    spec = deposit(bank, rollback=Compensate("bank.restore", lambda params, before, result: {}))
    registry = Registry([undo, spec])
    assert registry.plan(registry.latest(DEPOSIT)).as_json() == {
        "kind": "compensate",
        "action": "bank.restore",
        "version": 3,
    }


def test_a_compensation_of_an_unknown_type_is_refused_before_anything_is_stored() -> None:
    rollback = Compensate("bank.restore", lambda params, before, result: {})
    bench = Bench(deposit(Bank(), rollback=rollback))
    with pytest.raises(UnknownAction, match=r"bank\.restore"):
        bench.propose(DEPOSIT, TEN)
    assert bench.redis.keys() == []


@pytest.mark.parametrize(
    ("rollback", "plan"),
    [
        (InBand("undo"), {"kind": "in_band", "undo": "undo"}),
        (InBand(Readable.undo), {"kind": "in_band", "undo": "undo"}),
        (OutOfBand("run/book.md"), {"kind": "out_of_band", "runbook": "run/book.md"}),
        (
            Irreversible("sent is sent", challenge=lambda params: "yes"),
            {"kind": "irreversible", "reason": "sent is sent"},
        ),
    ],
    ids=["by-name", "by-function", "by-hand", "never"],
)
def test_an_approver_sees_the_plan(rollback: Any, plan: dict[str, Any]) -> None:
    bench = Bench(deposit(Bank(), rollback=rollback))
    assert bench.propose(DEPOSIT, TEN).rollback == plan


@pytest.mark.parametrize("undo", ["undo", Readable.undo], ids=["by-name", "by-function"])
def test_an_undo_is_found_by_name_or_as_a_function(undo: Any) -> None:
    bank = Bank(troubles=[Trouble.LANDS_WRONG])
    bench = Bench(deposit(bank, rollback=InBand(undo)))
    id = bench.approved(DEPOSIT, TEN)
    assert bench.run(id).state is State.ROLLED_BACK
    assert bank.effects(RESTORE) == 1


# --- modules -------------------------------------------------------------------------------------


def test_the_types_of_a_module_are_loaded(module: ModuleType) -> None:
    module.__dict__.update(Noop=Noop, Action=Action, other=5)
    assert Registry.load([module.__name__]).names() >= {"noop"}


def test_a_module_that_does_not_exist_is_named() -> None:
    with pytest.raises(ActionModuleError, match=r"no_such_module.*ModuleNotFoundError"):
        Registry.load(["no_such_module"])


def test_a_module_without_a_type_is_named(module: ModuleType) -> None:
    with pytest.raises(ActionModuleError, match=f"{module.__name__}.*defines no action type"):
        Registry.load([module.__name__])


def test_an_incomplete_type_in_a_module_is_refused(module: ModuleType) -> None:
    module.__dict__["Broken"] = variant("execute")
    with pytest.raises(InvalidActionType):
        Registry.load([module.__name__])


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("theirs", "no_such_module:actions", "tallystick.actions")
    monkeypatch.setattr("tallystick.jobs.registry.entry_points", lambda group: [broken])
    with pytest.raises(ActionModuleError, match="no_such_module:actions"):
        Registry.load([])


def test_the_types_of_an_entry_point_are_loaded(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    module.__dict__["Noop"] = Noop
    theirs = EntryPoint("theirs", module.__name__, "tallystick.actions")
    monkeypatch.setattr("tallystick.jobs.registry.entry_points", lambda group: [theirs])
    assert Registry.load([]).names() == {"noop"}


# --- parameters ----------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


class Rich(BaseModel):
    day: date
    colour: Colour = Colour.RED
    price: Decimal = Decimal("1.50")
    ratio: float = 0.5
    tags: list[str] = []


Buy = variant(name="shop.buy", Params=Rich)


def test_parameters_are_stored_in_one_plain_form_that_reads_back_the_same() -> None:
    given, form = validate(Buy(), {"day": "2026-11-29", "price": "2.50"})
    assert form == {
        "colour": "red",
        "day": "2026-11-29",
        "price": form["price"],
        "ratio": 0.5,
        "tags": [],
    }
    assert Decimal(str(form["price"])) == Decimal("2.5")
    assert validate(Buy(), form) == (given, form)
    assert isinstance(given, Rich)


def test_a_model_may_be_given_as_well_as_a_mapping() -> None:
    model = Rich(day=date(2026, 11, 29))
    assert validate(Buy(), model) == validate(Buy(), {"day": date(2026, 11, 29)})


def test_a_refused_parameter_shows_what_the_type_takes() -> None:
    with pytest.raises(InvalidInput) as raised:
        validate(Buy(), {"day": "tomorrow"})
    assert raised.value.facts["field"] == "params.day"
    assert "shop.buy takes {day: date, colour: Colour (optional)" in str(raised.value)


# --- the short form ------------------------------------------------------------------------------


def test_a_function_becomes_a_type() -> None:
    sent: list[tuple[str, int]] = []

    @action(
        "mail.send", rollback=BY_HAND, verify=lambda params, before, now, result: Verdict.holds()
    )
    def send(to: str, copies: int = 1) -> None:
        """Send it."""
        sent.append((to, copies))

    bench = Bench(send)
    id = bench.approved("mail.send", {"to": "anna"})
    assert bench.run(id).state is State.COMMITTED
    assert sent == [("anna", 1)]
    assert (send.name, send.__doc__) == ("mail.send", "Send it.")


def test_the_function_gets_its_context_if_it_asks_for_it() -> None:
    keys: list[str] = []

    @action(
        "mail.send", rollback=BY_HAND, verify=lambda params, before, now, result: Verdict.holds()
    )
    def send(to: str, context: Any) -> None:
        keys.append(context.idempotency_key)

    bench = Bench(send)
    bench.run(bench.approved("mail.send", {"to": "anna"}, key="k"))
    assert keys == ["k"]


def test_the_short_form_takes_all_that_the_class_takes() -> None:
    world = {"n": 0}

    def add(by: int) -> None:
        world["n"] += by

    made = action(
        "n.add",
        rollback=InBand(lambda params, before, result, context: world.update(n=before["n"])),
        observe=lambda params: dict(world),
        verify=lambda params, before, now, result: Verdict.equal(
            expected=before["n"] + params.by + 1, observed=now["n"]
        ),
        precondition=lambda params, approved, now: Verdict.holds(),
        version=2,
    )(add)
    bench = Bench(made)
    id = bench.approved("n.add", {"by": 5})
    found = bench.run(id)
    assert (found.state, found.version, found.protection) == (State.ROLLED_BACK, 2, "readable")
    assert world == {"n": 0}
