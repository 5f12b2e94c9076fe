"""One value has one canonical form, and what has no exact form is refused by its path."""

import dataclasses
import hashlib
import json
import math
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tallystick.core import canonical
from tallystick.core.canonical import MAX_DEPTH, MAX_INTEGER
from tallystick.core.errors import InvalidInput

E_ACUTE, E_APART = "caf\u00e9", "cafe\u0301"


def refused(call: Callable[[], Any], field: str, *words: str) -> None:
    """It is refused under this name, in a way that can be printed, with something to do."""
    with pytest.raises(InvalidInput) as raised:
        call()
    assert raised.value.facts["field"] == field
    assert raised.value.facts["remedy"].endswith(".")
    for word in words:
        assert word in str(raised.value)


def form(value: Any) -> Any:
    return canonical.normalise(value, field="x")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# --- reading JSON from outside -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"a": 1, "a": 2}', "p.a"),
        ('{"a": 1, "a": 1}', "p.a"),
        ('{"a": 1, "\\u0061": 2}', "p.a"),
        ('[{"b": {"c": 1, "c": 2}}]', "p.c"),
    ],
)
def test_a_key_that_stands_twice_is_refused(text: str, field: str) -> None:
    refused(lambda: canonical.loads(text, field="p"), field, "twice")


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_what_only_javascript_calls_a_number_is_refused(token: str) -> None:
    refused(lambda: canonical.loads(f'{{"a": [{token}]}}', field="p"), "p", token)


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[1,]", "{'a': 1}", "01", "1 2", "tru", '"\t"', "\ufeff1", b'"\xff"']
)
def test_bad_syntax_is_refused(text: str | bytes) -> None:
    refused(lambda: canonical.loads(text, field="p"), "p", "not valid JSON")


@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_json_that_is_nested_without_end_is_refused(bracket: str) -> None:
    refused(lambda: canonical.loads(bracket * 100_000, field="p"), "p", "nested deeper")


def test_an_integer_of_thousands_of_digits_is_refused() -> None:
    refused(lambda: canonical.loads("1" * 5000, field="p"), "p", "Pass large numbers as strings")


def test_an_exponent_beyond_all_decimals_is_refused() -> None:
    refused(lambda: canonical.loads("1e99999999999999999999", field="p"), "p")


@pytest.mark.parametrize("text", ["0.1", "1.10", "1e3", "-0.0", "0.30000000000000000004"])
def test_a_number_with_a_fraction_becomes_the_decimal_that_was_written(text: str) -> None:
    read = canonical.loads(text, field="p")
    assert isinstance(read, Decimal)
    assert read.as_tuple() == Decimal(text).as_tuple()


def test_whole_numbers_stay_whole() -> None:
    read = canonical.loads("[0, -7, 9007199254740993]", field="p")
    assert read == [0, -7, 2**53 + 1]
    assert {type(number) for number in read} == {int}


def test_text_and_bytes_read_alike() -> None:
    assert canonical.loads('{"a":"é"}', field="p") == canonical.loads(
        '{"a":"é"}'.encode(), field="p"
    )


# --- the form of a value -------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


class Rank(IntEnum):
    FIRST = 1


class OldColour(str, Enum):  # noqa: UP042 - what older code bases hold
    RED = "red"


class Plain(Enum):
    RED = "red"


class Order(BaseModel):
    account: str = "alice"
    when: date = date(2026, 11, 29)


@dataclasses.dataclass
class Holder:
    held: Any


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (False, False),
        (7, 7),
        (0.5, 0.5),
        ("a\tb\r\nc", "a\tb\r\nc"),
        ((1, 2), [1, 2]),
        ({"a": (1,)}, {"a": [1]}),
        (Colour.RED, "red"),
        (Plain.RED, "red"),
        (Rank.FIRST, 1),
        (Order(), {"account": "alice", "when": "2026-11-29"}),
        (Holder({"a": [1]}), {"held": {"a": [1]}}),
        (datetime(2026, 11, 29, 16, 30, tzinfo=UTC), "2026-11-29T16:30:00Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("/tmp/a"), "/tmp/a"),
        (b"text", "text"),
    ],
)
def test_values_have_the_form_that_json_has_for_them(value: Any, expected: Any) -> None:
    found = form(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("1.50", "1.5"),
        ("1.5", "1.5"),
        ("15e-1", "1.5"),
        ("100", "100"),
        ("1E+2", "100"),
        ("-0", "0"),
        ("0.000", "0"),
        ("-0.010", "-0.01"),
        ("1e-200", "0." + "0" * 199 + "1"),
        ("1e200", "1" + "0" * 200),
        ("1234567890123456789012345678", "1234567890123456789012345678"),
    ],
)
def test_one_number_has_one_spelling(given: str, kept: str) -> None:
    assert form(Decimal(given)) == kept


LONG = ["12345678901234567890123456789012345", "1.00000000000000000000000000000000001"]


@pytest.mark.parametrize("given", LONG)
def test_a_decimal_of_more_than_28_digits_is_never_rounded(given: str) -> None:
    assert form(Decimal(given)) == given


def test_the_form_of_a_decimal_does_not_depend_on_the_callers_context() -> None:
    with localcontext() as context:
        context.prec = 3
        assert form(Decimal("1234.5")) == "1234.5"


def test_an_enum_of_text_is_its_value_as_a_value_and_as_a_key() -> None:
    assert form({OldColour.RED: OldColour.RED}) == {"red": "red"}


@pytest.mark.parametrize("wrapped", [Holder(Decimal("1.50")), Holder([Decimal("1.50")])], ids=str)
def test_a_decimal_inside_of_a_model_has_the_same_spelling(wrapped: Any) -> None:
    assert canonical.dumps(form(wrapped)).count(b'"1.5"') == 1


def test_a_set_inside_of_a_model_is_refused() -> None:
    with pytest.raises(InvalidInput):
        form(Holder({"a", "b"}))


SEEDED = """
from pydantic import BaseModel
from tallystick import Action
from tallystick.core import canonical
from tallystick.jobs.registry import validate
class Tags(BaseModel):
    tags: set[str]
class Tag(Action):
    name = "tag"
    Params = Tags
print(canonical.dumps(validate(Tag(), {"tags": ["a", "b", "c", "d", "e"]})[1]).decode())
"""


def test_a_set_among_the_parameters_is_refused_since_its_order_differs_between_processes() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SEEDED], capture_output=True, text=True, check=False
    )
    assert told.returncode == 1
    assert "params.tags: a set has no order" in told.stderr


def test_text_and_keys_are_unicode_nfc() -> None:
    assert form({E_APART: E_APART}) == {E_ACUTE: E_ACUTE}


def test_line_breaks_are_text_but_not_names() -> None:
    assert form("a\nb") == "a\nb"
    refused(lambda: form({"a\nb": 1}), "x", "U+000A")


BEYOND = [2**53, -(2**53), 10**400, float(2**53), -float(2**53), 1e22, 1.7e308]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1}, "set"),
        (frozenset({1}), "set"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (Decimal("NaN"), "NaN"),
        (Decimal("sNaN"), "NaN"),
        (Decimal("Infinity"), "Infinity"),
        (Decimal("1e201"), "size"),
        (Decimal("1e-201"), "size"),
        (Decimal("1e999999"), "size"),
        ("\ud800", "surrogate"),
        ("a\udfffb", "surrogate"),
        ("\0", "U+0000"),
        ("\x1b[31m", "U+001B"),
        ("\x7f", "U+007F"),
        ("\x85", "U+0085"),
        ({1: 2}, "no text"),
        ({None: 2}, "no text"),
        ({b"a": 2}, "no text"),
        ({"\ud800": 2}, "surrogate"),
        (object(), "JSON-able"),
        (b"\xff", "JSON-able"),
        (Holder(math.nan), "JSON"),
        *((value, "2^53") for value in BEYOND),
    ],
)
@pytest.mark.parametrize("where", ["alone", "within"])
def test_what_has_no_exact_form_is_refused_by_its_path(where: str, value: Any, words: str) -> None:
    inner = ".held" if isinstance(value, Holder) else ""
    if where == "alone":
        refused(lambda: form(value), "x" + inner, words)
    else:
        refused(lambda: form({"a": [0, {"b": value}]}), "x.a[1].b" + inner, words)


def test_keys_that_fall_together_under_nfc_are_refused() -> None:
    refused(lambda: form({"n": {E_ACUTE: 1, E_APART: 2}}), f"x.n.{E_ACUTE}", "NFC")


@pytest.mark.parametrize("number", [MAX_INTEGER, -MAX_INTEGER, float(MAX_INTEGER), 0.1, 5e-324])
def test_numbers_up_to_2_to_the_53_are_exact(number: float) -> None:
    assert form(number) == number
    assert json.loads(canonical.dumps(form(number))) == number


def test_depth_is_limited() -> None:
    assert form(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    refused(lambda: form(nested(MAX_DEPTH + 1)), "x" + "[0]" * (MAX_DEPTH + 1), "deeper than 32")


def test_what_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput):
        form(loop)
    holder = Holder(None)
    holder.held = holder
    with pytest.raises(InvalidInput, match="nested deeper"):
        form(holder)


def storable() -> st.SearchStrategy[Any]:
    names = st.text(st.characters(exclude_categories=["Cc", "Cs"]))
    values = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\t\n\r")).map(
        lambda text: "".join(c for c in text if c in "\t\n\r" or unicodedata.category(c) != "Cc")
    )
    numbers = (
        st.integers(-MAX_INTEGER, MAX_INTEGER)
        | st.floats(-(2.0**52), 2.0**52)
        | st.decimals(min_value=-(10**9), max_value=10**9, places=6)
    )
    leaves = st.none() | st.booleans() | numbers | values | st.dates() | st.uuids()
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner)
            | st.lists(inner).map(tuple)
            | st.dictionaries(names.map(lambda name: unicodedata.normalize("NFC", name)), inner)
        ),
        max_leaves=20,
    )


@given(storable())
def test_the_form_of_a_form_is_itself(value: Any) -> None:
    once = form(value)
    assert form(once) == once


@given(storable())
def test_a_form_comes_back_from_its_bytes(value: Any) -> None:
    once = form(value)
    data = canonical.dumps(once)
    assert canonical.parse(data) == once
    assert canonical.dumps(canonical.parse(data)) == data
    assert canonical.parse(data.decode()) == once


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(0, 9), max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical.dumps(turned) == canonical.dumps(value)


# --- canonical bytes -----------------------------------------------------------------------------


def test_the_example_of_rfc_8785_has_its_bytes() -> None:
    """Section 3.2.2 and 3.2.4; `literals`, `numbers` and `string` as printed there."""
    given = json.loads(
        r"""{
          "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }"""
    )
    assert (
        canonical.dumps(given)
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )


def test_keys_have_the_order_of_rfc_8785() -> None:
    """Section 3.2.3: by UTF-16 code units, so that the smiley comes before U+FB33."""
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    ordered = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(canonical.dumps(dict.fromkeys(names)))) == ordered


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, b"0"),
        (-0.0, b"0"),
        (5e-324, b"5e-324"),
        (1.7976931348623157e308, b"1.7976931348623157e+308"),
        (9.999999999999997e22, b"9.999999999999997e+22"),
        (1e23, b"1e+23"),
        (0.000001, b"0.000001"),
        (9.999999999999997e-7, b"9.999999999999997e-7"),
        (333333333.33333325, b"333333333.33333325"),
        (1424953923781206.2, b"1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_rfc_8785_appendix_b_says(number: float, text: bytes) -> None:
    assert canonical.dumps(number) == text


@pytest.mark.parametrize(
    "text",
    [
        ' {"a":1}',
        '{"a":1}\n',
        '{"a": 1}',
        '{"b":1,"a":2}',
        '{"a":1,"a":1}',
        '{"a":1.0}',
        '{"a":1e2}',
        '{"a":-0}',
        '{"a":"\\u0062"}',
        '{"a":"\\/"}',
        '{"a":"\\u000a"}',
        '{"a":"\\u001F"}',
        '{"a":NaN}',
        '{"a":9007199254740993}',
        '{"a":"\\ud800"}',
        '{"a":"\ud800"}',
        '\ufeff{"a":1}',
        "{",
        "",
    ],
    ids=ascii,
)
def test_stored_text_that_is_not_canonical_is_never_repaired(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical.parse(text)


def test_stored_bytes_in_another_encoding_are_refused() -> None:
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        with pytest.raises(ValueError, match=r"."):
            canonical.parse('{"a":1}'.encode(encoding))
    with pytest.raises(ValueError, match=r"."):
        canonical.parse(b'"\xff"')


SAMPLE = canonical.dumps({"a": [1, 2.5, "é\n", None, True], "b": {"c": "d"}})


@given(at=st.integers(0, len(SAMPLE) - 1), byte=st.binary(max_size=2))
def test_any_byte_changed_added_or_lost_shows(at: int, byte: bytes) -> None:
    """It no longer parses, or is another value with another digest; never the same value."""
    changed = SAMPLE[:at] + byte + SAMPLE[at + 1 :]
    try:
        read = canonical.parse(changed)
    except ValueError:
        return
    assert (read == canonical.parse(SAMPLE)) == (changed == SAMPLE)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000], ids=["open", "shut"]
)
def test_stored_bytes_that_are_nested_without_end_are_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical.parse(text)


@pytest.mark.parametrize("data", [b"", b"abc", bytes(range(256)) * 100], ids=["none", "abc", "all"])
def test_a_digest_is_what_sha256sum_says(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(data)
    told = subprocess.run(
        ["sha256sum", tmp_path / "data"], capture_output=True, text=True, check=True
    )
    assert canonical.digest(data) == "sha256:" + told.stdout.split()[0]


@given(st.binary())
def test_a_digest_is_the_sha256_of_exactly_these_bytes(data: bytes) -> None:
    assert canonical.digest(data) == f"sha256:{hashlib.sha256(data).hexdigest()}"


# --- text from outside ---------------------------------------------------------------------------


@given(st.text(st.characters()), st.integers(0, 30))
def test_whatever_is_told_can_be_stored(words: str, limit: int) -> None:
    for error in (words, ValueError(words), KeyError(words), InvalidInput):
        told = canonical.told(error, limit=limit)
        assert canonical.text(told, field="x", line_breaks=True) == told
        assert canonical.parse(canonical.dumps(form({"why": told}))) == {"why": told}


def test_an_error_is_told_with_its_type() -> None:
    assert canonical.told(OSError("gone")) == "OSError: gone"
    assert canonical.told("gone") == "gone"
    assert canonical.told(ValueError("a\0b\ud800c\nd")) == "ValueError: a\ufffdb\ufffdc\nd"


def test_what_is_told_is_cut() -> None:
    assert canonical.told("a" * 501) == "a" * 500
    assert canonical.told("abc", limit=2) == "ab"


def test_what_is_told_is_cut_after_normalisation() -> None:
    assert len(canonical.told("\ufb2c" * 600)) <= 500


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot say")


def test_an_error_that_cannot_be_printed_is_told_by_its_type() -> None:
    assert "Speechless" in canonical.told(Speechless())


def test_a_float_is_the_decimal_that_it_prints_as() -> None:
    assert canonical.exact(0.1) == Decimal("0.1")
    assert canonical.exact(1e-7) == Decimal("1e-7")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_comes_back_from_its_decimal(number: float) -> None:
    assert float(canonical.exact(number)) == number


def test_a_label_is_limited_in_bytes_and_not_characters() -> None:
    assert canonical.label("ß" * 128, field="key") == "ß" * 128
    refused(lambda: canonical.label("ß" * 128 + "a", field="key"), "key", "257 bytes")
    refused(lambda: canonical.label("aaa", field="key", limit=2), "key", "limit is 2")


def test_a_label_is_measured_in_its_normal_form() -> None:
    assert canonical.label("e\u0301" * 128, field="key") == "é" * 128


@pytest.mark.parametrize("blank", ["", " ", "\u2003", "\u00a0 "], ids=ascii)
def test_a_blank_label_is_refused(blank: str) -> None:
    refused(lambda: canonical.label(blank, field="by"), "by", "empty")


@pytest.mark.parametrize("bad", ["a\nb", "a\tb", "a\0", "\ud800"], ids=ascii)
def test_a_label_is_one_line_of_clean_text(bad: str) -> None:
    refused(lambda: canonical.label(bad, field="by"), "by")
