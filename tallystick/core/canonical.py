"""Canonical JSON and digests: one value has one form, and one form has one SHA-256.

The form is RFC 8785 (JSON Canonicalization Scheme). Input is normalised *before* the digest is
taken (Unicode NFC, decimals as strings), so what is approved is, byte for byte, what is executed.
"""

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Never, TypeAlias

import rfc8785
from pydantic_core import PydanticSerializationError, to_jsonable_python

from tallystick.core.errors import InvalidInput

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

MAX_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_INTEGER = 2**53 - 1

_LINE_BREAKS = frozenset("\t\n\r")


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
                    field=f"{field}.{name}",
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
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidInput(
            field=field, problem=str(error), remedy="Pass large numbers as strings."
        ) from None


def normalise(value: Any, *, field: str) -> Json:
    """The JSON form of any JSON-able Python value (models, dates, decimals as strings).

    Raises `InvalidInput`, naming the path, for what has no exact JSON form: NaN, integers beyond
    2**53 - 1, lone surrogates, control characters, keys that are not strings, depth over 32.
    """
    try:
        plain = to_jsonable_python(value, inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidInput(
            field=field, problem=f"not JSON-able ({error})", remedy="Return plain JSON values."
        ) from None
    return _checked(plain, field, 0)


def _checked(value: Any, path: str, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise _too_deep(path)
    if isinstance(value, str):
        return text(value, field=path, line_breaks=True)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise InvalidInput(
                field=path,
                problem=f"the integer {str(value)[:24]} is beyond 2^53 - 1 and not exact in JSON",
                remedy="Pass it as a string.",
            )
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(
                field=path, problem=f"{value} is not JSON", remedy="Use a finite number or null."
            )
        return value
    if isinstance(value, list):
        return [_checked(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
    return {
        text(name, field=path): _checked(item, f"{path}.{name}", depth + 1)
        for name, item in value.items()
    }


def _too_deep(path: str) -> InvalidInput:
    return InvalidInput(
        field=path, problem=f"nested deeper than {MAX_DEPTH} levels", remedy="Flatten it."
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


def exact(number: float) -> Decimal:
    """The decimal that a float prints as: 0.1 is 0.1, as its author wrote it."""
    return Decimal(repr(number))


def label(value: str, *, field: str, limit: int = 256) -> str:
    """A name, key or reason from outside: NFC, not blank, at most `limit` UTF-8 bytes."""
    clean = text(value, field=field)
    if not clean.strip():
        raise InvalidInput(field=field, problem="it is empty", remedy="Give it a value.")
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
    value = json.loads(raw)
    if rfc8785.dumps(value) != raw:
        raise ValueError("the stored bytes are not in canonical form")
    return value


def digest(data: bytes) -> str:
    """`sha256:` and the hex SHA-256 of these bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
