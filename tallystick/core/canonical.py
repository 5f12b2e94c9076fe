"""Canonical JSON and digests: one value has one form, and one form has one SHA-256.

The form is RFC 8785 (JSON Canonicalization Scheme). Input is normalised *before* the digest is
taken (Unicode NFC, decimals as strings), so what is approved is, byte for byte, what is executed.
"""

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any, Never, TypeAlias

import rfc8785
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from tallystick.core.errors import InvalidInput

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

MAX_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_INTEGER = 2**53 - 1
MAX_EXPONENT = 200

_LINE_BREAKS = frozenset("\t\n\r")
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs"})


def loads(text: str | bytes, *, field: str) -> Any:
    """Parse JSON from outside strictly; numbers with a fraction become `Decimal`.

    Raises `InvalidInput` for bad syntax, duplicate keys, NaN and infinities. `field` names the
    value in the error.
    """

    def no_constant(token: str) -> Never:
        raise InvalidInput(
            field=field, problem=f"{token} is not JSON", remedy="Use a finite number or null."
        )

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name, value in pairs:
            if name in seen:
                raise InvalidInput(
                    field=f"{field}.{told(name)}",
                    problem="the key stands twice in one JSON object",
                    remedy="Keep one of them.",
                )
            seen[name] = value
        return seen

    try:
        return json.loads(
            text, object_pairs_hook=unique, parse_constant=no_constant, parse_float=Decimal
        )
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(
            field=field, problem=f"not valid JSON ({error})", remedy="Correct the syntax."
        ) from None
    except RecursionError:
        raise _too_deep(field) from None
    except (ValueError, ArithmeticError) as error:  # a number of thousands of digits
        raise InvalidInput(
            field=field,
            problem=f"a number is too large ({told(error)})",
            remedy="Pass large numbers as strings.",
        ) from None


def normalise(value: Any, *, field: str, deepest: int = MAX_DEPTH) -> Json:
    """The JSON form of any JSON-able Python value: models, dates, decimals (`Decimal("1.50")` is
    `"1.5"`: one number, one spelling).

    Raises `InvalidInput`, naming the path, for what has no exact JSON form: NaN, integers beyond
    2**53 - 1, lone surrogates, control characters, sets, keys that are no text or fall together
    under NFC, depth over `deepest`.
    """
    return _form(value, field, deepest)


def _form(value: Any, path: str, left: int) -> Json:
    if left < 0:
        raise _too_deep(path)
    match value:
        case None | bool():
            return value
        case str():
            return text(str.__str__(value), field=path, line_breaks=True)
        case int() | float():
            return _number(value, path)
        case Decimal():
            return _decimal(value, path)
        case Mapping():
            return _object(value, path, left)
        case list() | tuple():
            return [_form(item, f"{path}[{at}]", left - 1) for at, item in enumerate(value)]
        case set() | frozenset():
            raise InvalidInput(
                field=path, problem="a set has no order", remedy="Use a sorted list instead."
            )
    return _form(_plain(value, path), path, left)


def _plain(value: Any, path: str) -> Any:
    """Models and dataclasses as their fields; dates, UUIDs and paths as pydantic writes them."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidInput(
            field=path,
            problem=f"not JSON-able ({told(str(error))})",
            remedy="Return plain JSON values.",
        ) from None


def _object(value: Mapping[Any, Any], path: str, left: int) -> dict[str, Json]:
    form: dict[str, Json] = {}
    for given, item in value.items():
        if not isinstance(given, str):
            raise InvalidInput(
                field=path, problem=f"the key {given!r} is no text", remedy="Use text keys."
            )
        name = text(str.__str__(given), field=path)
        if name in form:
            raise InvalidInput(
                field=f"{path}.{name}",
                problem="two keys are the same in Unicode NFC",
                remedy="Keep one of them.",
            )
        form[name] = _form(item, f"{path}.{name}", left - 1)
    return form


def _number(value: float, path: str) -> int | float:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(
            field=path, problem=f"{value} is not JSON", remedy="Use a finite number or null."
        )
    if abs(value) > MAX_INTEGER and int(value) == value:
        raise InvalidInput(
            field=path,
            problem="the integer is beyond 2^53 - 1 and not exact in JSON",
            remedy="Pass it as a string.",
        )
    return float(value) if isinstance(value, float) else int(value)


def _decimal(value: Decimal, path: str) -> str:
    if not value.is_finite() or (value and abs(value.adjusted()) > MAX_EXPONENT):
        raise InvalidInput(
            field=path,
            problem=f"the decimal {value} is not a number of reasonable size",
            remedy="Use a finite decimal.",
        )
    digits = format(value, "f")  # exact, whatever the precision of the caller's context
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) if value else "0"


def _too_deep(path: str) -> InvalidInput:
    return InvalidInput(
        field=path[:200], problem=f"nested deeper than {MAX_DEPTH} levels", remedy="Flatten it."
    )


def text(value: str, *, field: str, line_breaks: bool = False) -> str:
    """The NFC form of one string; raises `InvalidInput` for surrogates and control characters."""
    for char in value:
        category = unicodedata.category(char)
        if category == "Cs":
            raise InvalidInput(
                field=field, problem="it holds a lone surrogate", remedy="Send valid Unicode."
            )
        if category == "Cc" and not (line_breaks and char in _LINE_BREAKS):
            raise InvalidInput(
                field=field,
                problem=f"it holds the control character U+{ord(char):04X}",
                remedy="Remove it.",
            )
    return unicodedata.normalize("NFC", value)


def told(error: object, *, limit: int = 500) -> str:
    """What an exception (or any text from outside) says, made fit for the journal: never raises.

    Characters that may not be stored are replaced, and it is cut at `limit` characters.
    """
    kind = type(error).__name__
    try:
        words = f"{kind}: {error}" if isinstance(error, Exception) else str(error)
    except Exception:  # an exception that cannot even be printed
        words = kind
    kept = (
        char if char in _LINE_BREAKS or unicodedata.category(char) not in {"Cc", "Cs"} else "\ufffd"
        for char in words[:limit]
    )
    return unicodedata.normalize("NFC", "".join(kept))[:limit]


def spelt_out(text: str, *, line_breaks: bool = True) -> str:
    """Text that is safe to print: characters that hide, reorder or overwrite others (control,
    format, private and surrogate ones) as `\\u202e`; so also line breaks unless they may stay."""
    return "".join(
        char
        if (char == "\n" and line_breaks) or unicodedata.category(char) not in _UNSEEN
        else f"\\u{ord(char):04x}"
        for char in text
    )


def exact(number: float) -> Decimal:
    """The decimal that a float prints as: 0.1 is 0.1, as its author wrote it."""
    return Decimal(repr(number))


def label(value: object, *, field: str, limit: int = 256) -> str:
    """A name, key or id from outside: NFC, not blank, nothing invisible, at most `limit` bytes of
    UTF-8. Raises `InvalidInput`."""
    if not isinstance(value, str):
        raise InvalidInput(field=field, problem="it is no text", remedy="Pass a string.")
    clean = text(value, field=field)
    if not clean.strip():
        raise InvalidInput(field=field, problem="it is empty", remedy="Give it a value.")
    for char in clean:
        if unicodedata.category(char) == "Cf":
            raise InvalidInput(
                field=field,
                problem=f"it holds the invisible character U+{ord(char):04X}",
                remedy="Remove it.",
            )
    if (size := len(clean.encode())) > limit:
        raise InvalidInput(
            field=field, problem=f"{size} bytes, the limit is {limit}", remedy="Shorten it."
        )
    return clean


def dumps(value: "Json | Mapping[str, Json]") -> bytes:
    """The canonical bytes of a normalised JSON value (RFC 8785)."""
    return rfc8785.dumps(value)


def parse(data: bytes | str) -> Any:
    """Parse canonical bytes that were read back; raises ValueError unless they are canonical.

    Stored bytes are never repaired: any difference from the one canonical form is tampering.
    """
    raw = data.encode() if isinstance(data, str) else data
    try:
        value = json.loads(raw)
        form = rfc8785.dumps(value)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if form != raw:
        raise ValueError("the stored bytes are not in canonical form")
    return value


def digest(data: bytes) -> str:
    """`sha256:` and the hex SHA-256 of these bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
