"""A verdict: what a look at the target proves, with its evidence."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from tallystick.core import canonical
from tallystick.core.canonical import Json


class Answer(StrEnum):
    """What a look can say. *Inconclusive* is neither of the others and never counts as one."""

    HOLDS = "holds"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer and the evidence for it. Build it with `holds`, `fails` or `inconclusive`."""

    answer: Answer
    expected: Json = None
    observed: Json = None
    reason: str = ""

    @classmethod
    def holds(cls, *, observed: Any = None, expected: Any = None, reason: str = "") -> "Verdict":
        """The world is as it should be; `observed` is any JSON-able reading that shows it."""
        return cls(Answer.HOLDS, *_evidence(expected, observed), canonical.told(reason))

    @classmethod
    def fails(cls, *, expected: Any, observed: Any, reason: str = "") -> "Verdict":
        """The world is definitely not as it should be."""
        return cls(Answer.FAILS, *_evidence(expected, observed), canonical.told(reason))

    @classmethod
    def inconclusive(cls, *, reason: str, observed: Any = None) -> "Verdict":
        """The look proves nothing; `reason` says why (unreachable, ambiguous, still pending)."""
        return cls(Answer.INCONCLUSIVE, *_evidence(None, observed), canonical.told(reason))

    @classmethod
    def equal(cls, *, expected: Any, observed: Any) -> "Verdict":
        """Holds if both have the same canonical JSON form, fails otherwise.

        A `Decimal` on one side equals any spelling of the same number on the other, so that
        `Decimal("70")` is what a column shows as `"70.00"`.
        """
        want, seen = _evidence(_spelt_alike(expected, observed), observed)
        answer = Answer.HOLDS if canonical.dumps(want) == canonical.dumps(seen) else Answer.FAILS
        return cls(answer, want, seen)

    def __bool__(self) -> bool:
        raise TypeError("a verdict has three answers; compare verdict.answer instead")

    @property
    def difference(self) -> dict[str, Json]:
        """For each path where expected and observed differ: what was wanted, what was seen."""
        if self.answer is not Answer.FAILS:
            return {}
        return difference(self.expected, self.observed)

    def as_json(self) -> dict[str, Json]:
        """The evidence as it is stored in the journal."""
        facts: dict[str, Json] = {"answer": self.answer.value}
        if self.answer is not Answer.INCONCLUSIVE:  # null is evidence as well: it is not there
            facts |= {"expected": self.expected, "observed": self.observed}
        elif self.observed is not None:
            facts["observed"] = self.observed
        if self.reason:
            facts["reason"] = self.reason
        if changed := self.difference:
            facts["difference"] = changed
        return facts


def difference(expected: Json, observed: Json, path: str = "") -> dict[str, Json]:
    """Where two JSON values differ: `{path: {"expected": …, "observed": …}}`, empty if nowhere.

    A path reads `balances.alice` or `items[2]`, with names that would be ambiguous in brackets:
    `["a.b"]`; the root is `.`. A side that lacks the path shows null.
    """
    found: dict[str, Json] = {}
    if isinstance(expected, Mapping) and isinstance(observed, Mapping):
        for name in sorted(expected.keys() | observed.keys()):
            inner = _inner(path, name)
            if name in expected and name in observed:
                found |= difference(expected[name], observed[name], inner)
            else:
                found[inner] = {"expected": expected.get(name), "observed": observed.get(name)}
    elif isinstance(expected, list) and isinstance(observed, list):
        for at, (want, seen) in enumerate(zip_longest(expected, observed, fillvalue=_MISSING)):
            inner = f"{path}[{at}]"
            if want is _MISSING or seen is _MISSING:
                found[inner] = {
                    "expected": None if want is _MISSING else want,
                    "observed": None if seen is _MISSING else seen,
                }
            else:
                found |= difference(want, seen, inner)
    elif canonical.dumps(expected) != canonical.dumps(observed):
        found[path or "."] = {"expected": expected, "observed": observed}
    return found


_MISSING: Any = object()


def _inner(path: str, name: str) -> str:
    if not name or any(char in name for char in '.["'):
        return f"{path}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{path}.{name}" if path else name


def _spelt_alike(expected: Any, observed: Any) -> Any:
    """`expected`, with each decimal that is numerically what `observed` shows spelt as there."""
    if isinstance(expected, Mapping) and isinstance(observed, Mapping):
        return {name: _spelt_alike(item, observed.get(name)) for name, item in expected.items()}
    if isinstance(expected, list | tuple) and isinstance(observed, list | tuple):
        return [_spelt_alike(*pair) for pair in zip(expected, observed, strict=False)] + list(
            expected[len(observed) :]
        )
    if isinstance(expected, Decimal) or isinstance(observed, Decimal):
        with contextlib.suppress(InvalidOperation, TypeError, ValueError):
            if Decimal(str(expected)) == Decimal(str(observed)):
                return observed
    return expected


def _evidence(expected: Any, observed: Any) -> tuple[Json, Json]:
    return (
        canonical.normalise(expected, field="expected"),
        canonical.normalise(observed, field="observed"),
    )
