"""A verdict says one of three things, and keeps the evidence for it in canonical JSON."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from tallystick.core import canonical
from tallystick.core.errors import InvalidInput
from tallystick.verifiers import Answer, Verdict, difference

HOLDS = Verdict.holds(observed={"balance": "70"}, expected={"balance": "70"}, reason="as approved")
FAILS = Verdict.fails(expected={"balance": "70"}, observed={"balance": "100"}, reason="no debit")
INCONCLUSIVE = Verdict.inconclusive(reason="the ledger does not answer", observed={"tries": 3})


# --- three answers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "answer"),
    [
        (HOLDS, Answer.HOLDS),
        (FAILS, Answer.FAILS),
        (INCONCLUSIVE, Answer.INCONCLUSIVE),
    ],
)
def test_each_constructor_gives_its_own_answer(verdict: Verdict, answer: Answer) -> None:
    assert verdict.answer is answer


@pytest.mark.parametrize("verdict", [HOLDS, FAILS, INCONCLUSIVE])
def test_a_verdict_is_never_read_as_true_or_false(verdict: Verdict) -> None:
    with pytest.raises(TypeError, match=r"three answers; compare verdict\.answer"):
        bool(verdict)


def test_a_verdict_in_an_if_is_refused() -> None:
    with pytest.raises(TypeError, match="three answers"):
        _ = "committed" if FAILS else "rolled back"


@pytest.mark.parametrize("verdict", [HOLDS, FAILS, INCONCLUSIVE])
def test_not_of_a_verdict_is_refused(verdict: Verdict) -> None:
    with pytest.raises(TypeError, match="three answers"):
        _ = not verdict


def test_a_verdict_cannot_be_changed_after_it_was_given() -> None:
    with pytest.raises(FrozenInstanceError):
        FAILS.answer = Answer.HOLDS  # type: ignore[misc]


def test_two_verdicts_with_the_same_evidence_are_equal() -> None:
    assert Verdict.holds(observed={"a": 1}) == Verdict.holds(observed={"a": 1})
    assert Verdict.holds(observed={"a": 1}) != Verdict.holds(observed={"a": 2})


# --- evidence --------------------------------------------------------------------------------


def test_evidence_is_a_copy_that_later_changes_do_not_reach() -> None:
    seen = {"lines": [1]}
    verdict = Verdict.holds(observed=seen)
    seen["lines"].append(2)
    assert verdict.observed == {"lines": [1]}


def test_a_decimal_has_one_spelling_however_it_was_scaled() -> None:
    verdict = Verdict.fails(expected=Decimal("70.10"), observed={"balance": Decimal("1E+2")})
    assert verdict.expected == "70.1"
    assert verdict.observed == {"balance": "100"}


@pytest.mark.parametrize("shown", ["70", "70.00", 70, Decimal("70.0")], ids=repr)
def test_a_decimal_equals_any_spelling_of_the_same_number(shown: object) -> None:
    verdict = Verdict.equal(expected={"a": [Decimal("70")]}, observed={"a": [shown]})
    assert verdict.answer is Answer.HOLDS
    assert verdict.difference == {}


def test_two_texts_are_compared_as_texts() -> None:
    assert Verdict.equal(expected="70", observed="70.00").answer is Answer.FAILS


def test_a_decimal_that_is_no_number_proves_nothing_equal() -> None:
    with pytest.raises(InvalidInput, match="not a number"):
        Verdict.equal(expected=Decimal("NaN"), observed=Decimal("NaN"))


def test_a_missing_item_is_a_difference_even_from_null() -> None:
    assert difference([None], []) == {"[0]": {"expected": None, "observed": None}}


def test_names_that_would_be_ambiguous_are_bracketed() -> None:
    found = difference({"a.b": 1, "a": {"b": 2}, "": 3}, {})
    assert set(found) == {'["a.b"]', "a", '[""]'}


def test_a_reason_with_unstorable_characters_is_made_storable() -> None:
    verdict = Verdict.inconclusive(reason="bad \udcff\x1b name")
    assert canonical.parse(canonical.dumps(verdict.as_json())) == verdict.as_json()


def test_dates_and_times_become_iso_text() -> None:
    moment = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    verdict = Verdict.holds(observed={"at": moment, "on": date(2031, 5, 6)})
    assert verdict.observed == {"at": "2031-05-06T07:08:09Z", "on": "2031-05-06"}


def test_text_becomes_nfc() -> None:
    assert Verdict.holds(observed="Zoe\u0308").observed == "Zo\u00eb"


Build = Callable[[Any], Verdict]


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda value: Verdict.holds(observed=value), "observed"),
        (lambda value: Verdict.holds(expected=value), "expected"),
        (lambda value: Verdict.fails(expected=value, observed=1), "expected"),
        (lambda value: Verdict.fails(expected=1, observed=value), "observed"),
        (lambda value: Verdict.inconclusive(reason="late", observed=value), "observed"),
        (lambda value: Verdict.equal(expected=value, observed=1), "expected"),
        (lambda value: Verdict.equal(expected=1, observed=value), "observed"),
    ],
    ids=[
        *("observed of holds", "expected of holds", "expected of fails", "observed of fails"),
        *("observed of inconclusive", "expected of equal", "observed of equal"),
    ],
)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_no_evidence(build: Build, field: str, number: float) -> None:
    with pytest.raises(InvalidInput, match=rf"^{field}\.rate: {number} is not JSON"):
        build({"rate": number})


@pytest.mark.parametrize(
    "value",
    [object(), 2**53, "\x00", "\ud800", b"\xff"],
    ids=["object", "huge integer", "control character", "surrogate", "binary"],
)
def test_evidence_without_an_exact_json_form_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"^observed"):
        Verdict.holds(observed=value)


# --- equal -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "observed"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Decimal("70.10"), "70.10"),
        ((1, 2), [1, 2]),
        ("Zo\u00eb", "Zoe\u0308"),
        (None, None),
    ],
    ids=["order of keys", "decimal and its text", "tuple and list", "two spellings", "absent"],
)
def test_equal_holds_for_the_same_canonical_form(expected: object, observed: object) -> None:
    verdict = Verdict.equal(expected=expected, observed=observed)
    assert verdict.answer is Answer.HOLDS
    assert verdict.difference == {}


@pytest.mark.parametrize(
    ("expected", "observed"),
    [
        (True, 1),
        (0, False),
        (1, "1"),
        (None, ""),
        (None, {}),
        ([], {}),
        ([1, 2], [2, 1]),
        ({"a": None}, {}),
        ({"owner": "alice"}, None),
    ],
)
def test_equal_fails_for_what_python_might_take_for_the_same(
    expected: object, observed: object
) -> None:
    verdict = Verdict.equal(expected=expected, observed=observed)
    assert verdict.answer is Answer.FAILS
    assert (verdict.expected, verdict.observed) == (expected, observed)


# --- difference ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "observed", "paths"),
    [
        ({"a": 1}, {"a": 1}, {}),
        (1, 2, {".": (1, 2)}),
        (None, {"a": 1}, {".": (None, {"a": 1})}),
        ({"a": 1}, [1], {".": ({"a": 1}, [1])}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": (2, 3)}),
        ({"of": {"alice": "70"}}, {"of": {"alice": "100"}}, {"of.alice": ("70", "100")}),
        ([1, 2, 3], [1, 5, 3], {"[1]": (2, 5)}),
        ({"items": ["a", "b"]}, {"items": ["a"]}, {"items[1]": ("b", None)}),
        ({"items": ["a"]}, {"items": ["a", "b"]}, {"items[1]": (None, "b")}),
        ({"rows": [{"n": 1}]}, {"rows": [{"n": 2}]}, {"rows[0].n": (1, 2)}),
        ([[1], [2]], [[1], [3]], {"[1][0]": (2, 3)}),
        ({"gone": 1}, {"new": 2}, {"gone": (1, None), "new": (None, 2)}),
        ({"a": {"b": 1}}, {"a": None}, {"a": ({"b": 1}, None)}),
        ({"a": True}, {"a": 1}, {"a": (True, 1)}),
        ({"a": 1}, {"a": 1.0}, {}),
        ({"é": 1}, {"é": 2}, {"é": (1, 2)}),
    ],
)
def test_difference_names_each_path_with_both_sides(
    expected: canonical.Json, observed: canonical.Json, paths: dict[str, tuple[Any, Any]]
) -> None:
    assert difference(expected, observed) == {
        path: {"expected": want, "observed": seen} for path, (want, seen) in paths.items()
    }


def test_difference_may_start_below_a_path() -> None:
    found = difference({"balance": 1}, {"balance": 2}, "accounts[4]")
    assert found == {"accounts[4].balance": {"expected": 1, "observed": 2}}


def test_paths_of_one_object_come_in_the_order_of_their_names() -> None:
    found = difference({"b": 1, "a": 1, "c": 1}, {"c": 2, "b": 2, "a": 2})
    assert list(found) == ["a", "b", "c"]


def test_a_failed_verdict_shows_its_difference() -> None:
    assert FAILS.difference == {"balance": {"expected": "70", "observed": "100"}}


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict.holds(expected={"a": 1}, observed={"a": 2}),
        Verdict.inconclusive(reason="still pending", observed={"a": 2}),
    ],
)
def test_only_a_failed_verdict_has_a_difference(verdict: Verdict) -> None:
    assert verdict.difference == {}


# --- what the journal stores -----------------------------------------------------------------


def test_a_failed_verdict_is_stored_with_both_sides_and_their_difference() -> None:
    assert FAILS.as_json() == {
        "answer": "fails",
        "expected": {"balance": "70"},
        "observed": {"balance": "100"},
        "reason": "no debit",
        "difference": {"balance": {"expected": "70", "observed": "100"}},
    }


def test_a_verdict_that_holds_is_stored_without_a_difference() -> None:
    assert HOLDS.as_json() == {
        "answer": "holds",
        "expected": {"balance": "70"},
        "observed": {"balance": "70"},
        "reason": "as approved",
    }


def test_an_inconclusive_verdict_is_stored_with_its_reason() -> None:
    assert INCONCLUSIVE.as_json() == {
        "answer": "inconclusive",
        "observed": {"tries": 3},
        "reason": "the ledger does not answer",
    }


def test_a_proven_absence_is_stored_as_evidence() -> None:
    proven = {"answer": "holds", "expected": None, "observed": None}
    assert Verdict.equal(expected=None, observed=None).as_json() == proven


def test_an_inconclusive_look_stores_only_what_it_has() -> None:
    told = {"answer": "inconclusive", "reason": "busy"}
    assert Verdict.inconclusive(reason="busy").as_json() == told


@pytest.mark.parametrize("empty", [0, False, "", [], {}])
def test_evidence_that_is_merely_empty_is_stored(empty: canonical.Json) -> None:
    assert Verdict.holds(observed=empty).as_json() == {
        "answer": "holds",
        "expected": None,
        "observed": empty,
    }


@pytest.mark.parametrize("verdict", [HOLDS, FAILS, INCONCLUSIVE])
def test_what_is_stored_survives_the_canonical_round_trip(verdict: Verdict) -> None:
    assert canonical.parse(canonical.dumps(verdict.as_json())) == verdict.as_json()
