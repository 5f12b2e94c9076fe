"""Every error says what happened and what to do, and survives the way to another process."""

import copy
import inspect
import multiprocessing
import pickle
import string
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tallystick.core import errors
from tallystick.core.errors import (
    InvalidInput,
    NotApplied,
    StaleFence,
    StoreError,
    TallystickError,
    UnknownId,
)


def tree(root: type[TallystickError] = TallystickError) -> Iterator[type[TallystickError]]:
    """The classes of the module, and none that tests have made."""
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from tree(kind)


TREE = sorted(tree(), key=lambda kind: kind.__name__)
LEAVES = [kind for kind in TREE if kind is not StoreError]

TO_OTHERS = {"NotApplied", "StaleFence", "LeaseLost", "StoreRefused"}
"""Those that only report: code of ours or of the action type answers them, not a person."""


def template(kind: type[TallystickError]) -> str:
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split())


def facts_of(kind: type[TallystickError]) -> dict[str, Any]:
    """A value for each placeholder of the docstring, of the kind that its format asks for."""
    return {
        name: 2.5 if spec else f"<{name}>"
        for _, name, spec, _ in string.Formatter().parse(template(kind))
        if name is not None
    }


def made(kind: type[TallystickError]) -> TallystickError:
    if kind is NotApplied:
        return NotApplied("<reason>")
    if kind is StaleFence:
        return StaleFence(7)
    return kind(**facts_of(kind))


@pytest.mark.parametrize("kind", LEAVES)
def test_an_error_says_its_docstring_with_its_facts(kind: type[TallystickError]) -> None:
    error = made(kind)
    assert str(error) == template(kind).format(**error.facts)
    assert set(error.facts) == set(facts_of(kind))
    for value in error.facts.values():
        assert str(value) in str(error)
    assert "{" not in str(error)
    assert "}" not in str(error)


@pytest.mark.parametrize("kind", LEAVES)
def test_an_error_is_one_line_of_whole_sentences(kind: type[TallystickError]) -> None:
    words = template(kind)
    assert "\n" not in str(made(kind))
    assert words.endswith((".", "{remedy}", "{reason}"))
    assert words[0].isupper() or words[0] == "{"


@pytest.mark.parametrize("kind", [kind for kind in LEAVES if kind.__name__ not in TO_OTHERS])
def test_an_error_ends_with_what_to_do(kind: type[TallystickError]) -> None:
    _, _, remedy = template(kind).partition(". ")
    assert remedy == "{remedy}" or (remedy[:1].isupper() and remedy.endswith("."))


@pytest.mark.parametrize("kind", LEAVES)
def test_a_fact_may_hold_braces_and_percents(kind: type[TallystickError]) -> None:
    given: dict[str, Any] = {
        name: "{x} %s {" if isinstance(value, str) else value
        for name, value in facts_of(kind).items()
    }
    if kind is StaleFence:
        given = {"token": 3}
    assert str(kind(**given)) == template(kind).format(**given)


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize(
    "carry",
    [
        *(lambda error, at=at: pickle.loads(pickle.dumps(error, at)) for at in range(6)),  # noqa: S301
        copy.copy,
        copy.deepcopy,
    ],
    ids=[*(f"pickle-{at}" for at in range(6)), "copy", "deepcopy"],
)
def test_an_error_is_the_same_after_pickle_and_copy(
    kind: type[TallystickError], carry: Callable[[TallystickError], TallystickError]
) -> None:
    error = made(kind)
    again = carry(error)
    assert type(again) is kind
    assert (str(again), repr(again)) == (str(error), repr(error))
    assert (again.facts, again.args) == (error.facts, error.args)


def fail() -> None:
    raise InvalidInput(field="params.amount", problem="it is {none}", remedy="Give one.")


def test_an_error_comes_back_from_another_process() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(InvalidInput) as told:
        pool.apply(fail)
    assert str(told.value) == "params.amount: it is {none}. Give one."
    assert told.value.facts["field"] == "params.amount"


def test_there_is_one_root() -> None:
    raised = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, BaseException)
    ]
    assert raised
    assert {kind for kind in raised if not issubclass(kind, TallystickError)} == set()
    assert set(raised) == {TallystickError, *TREE}


def test_an_error_that_is_raised_with_a_fact_missing_does_not_pass_unseen() -> None:
    with pytest.raises(KeyError, match="id"):
        UnknownId(name="x")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            TallystickError,
        ),
        StoreError,
    ],
)
def test_a_branch_of_the_tree_can_be_raised_alone(kind: type[TallystickError]) -> None:
    assert str(kind()) == template(kind)
    assert type(pickle.loads(pickle.dumps(kind()))) is kind  # noqa: S301


class Declined(NotApplied):
    pass


class Closed(NotApplied):
    """What the bank answers with {code} 409."""


@pytest.mark.parametrize("kind", [Declined, Closed])
def test_a_teams_own_refusal_keeps_the_reason(kind: type[NotApplied]) -> None:
    error = kind("the account is closed")
    assert "the account is closed" in str(error)
    assert str(copy.copy(error)) == str(error)
