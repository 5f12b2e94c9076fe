"""The recount: what the counters and the sizes of the indexes must be, by the journals alone.

Pure. The totals that it is compared with are those of one instant, so a line that was written in
the very millisecond of that instant may have been counted or not; so may, type by type, the lines
of a record whose content is not believed. A number is therefore a range.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.jobs import consequences
from tallystick.jobs.record import Line
from tallystick.jobs.states import State
from tallystick.metrics import counters
from tallystick.metrics.counters import SEPARATOR

NOBODY = "?"
"""The type of an action whose content is not believed; no action can have this name."""

_TYPED = {"transitions", "preconditions", "verifications", "rollbacks"}
_SINGLE = {
    counters.MOVES,
    counters.FENCING_REJECTIONS,
    counters.security_event("corrupt_record"),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is stored otherwise than the journals say."""

    where: str
    """A counter, an index or an action."""
    stored: str
    recounted: str


@dataclass
class Range:
    """Numbers by name, each known to lie between two."""

    low: Counter[str] = field(default_factory=Counter)
    high: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, number: int = 1, *, sure: bool) -> None:
        """Count something that was, or (not `sure`) may have been, counted."""
        self.high[name] += number
        if sure:
            self.low[name] += number

    def difference(self, name: str, where: str, stored: int, slack: int) -> Difference | None:
        low, high = self.low[name], self.high[name] + slack
        if low <= stored <= high:
            return None
        return Difference(where, str(stored), str(low) if low == high else f"{low} to {high}")


class Recount:
    """Counts lines up to the millisecond `at`."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.lines = 0
        self._unreadable = 0
        self._counted = Range()
        self._sizes = Range()

    def add(self, id: str, action: str, lines: Sequence[Line], unreadable: int = 0) -> None:
        """Count the journal of one action; `unreadable` lines of it could not be read."""
        self._unreadable += unreadable
        for line in lines:
            if line.at > self._at:
                continue
            self.lines += 1
            sure = line.at < self._at
            for name in consequences.of(line, id=id, action=action).bump:
                self._counted.add(name, sure=sure and _type_in(name) != NOBODY)
        self._add_stages(lines, sure=action != NOBODY)
        self._add_place(lines)

    def _add_stages(self, lines: Sequence[Line], *, sure: bool) -> None:
        entered = 0
        for line in lines:
            if line.from_state == line.to_state:
                continue
            timed = line.from_state in counters.STAGE_BOUNDS_MS and line.event != "corrupt"
            if timed and line.at <= self._at:
                stage, certain = counters.stage(line.from_state), sure and line.at < self._at
                self._counted.add(_join(stage, "count"), sure=certain)
                self._counted.add(_join(stage, "sum"), line.at - entered, sure=certain)
            entered = line.at

    def _add_place(self, lines: Sequence[Line]) -> None:
        """The state at the instant, or those that it may have been in."""
        before = [line.to_state for line in lines if line.at < self._at]
        possible = {*before[-1:], *(line.to_state for line in lines if line.at == self._at)}
        for state in possible:
            self._sizes.add(state, sure=possible == {*before[-1:]})

    def differences(
        self, counted: Mapping[str, str], sizes: Mapping[str, int]
    ) -> Iterator[Difference]:
        """What the stored counters and sizes do not agree with."""
        stored = _recountable(counted)
        for name in sorted({*stored, *self._counted.high}):
            if _type_in(name) != NOBODY:
                slack = self._unreadable + self._counted.high[_with_type(name, NOBODY)]
                found = self._counted.difference(
                    name, f"counter {name}", stored.get(name, 0), slack
                )
                yield from [found] if found else []
        for state in State:
            found = self._sizes.difference(state, f"index {state}", sizes[state], self._unreadable)
            yield from [found] if found else []


def open_calls(counted: Mapping[str, str], attention: Iterable[str]) -> Iterator[Difference]:
    """The gauges of open calls against the calls that are open, at the same instant."""
    calls = Counter(attention)
    gauges = {name: text for name, text in counted.items() if name.startswith("attention|")}
    for name in sorted({*calls, *gauges}):
        if str(calls[name]) != (found := gauges.get(name, "0")):
            yield Difference(f"counter {name}", found, str(calls[name]))


def call_of(id: str, action: str, lines: Sequence[Line]) -> str:
    """The counter field that an action with this journal raises; empty if it calls nobody."""
    raised = ""
    for line in lines:
        follows = consequences.of(line, id=id, action=action).attention
        raised = raised if follows is None else follows
    return raised


def _recountable(counted: Mapping[str, str]) -> Counter[str]:
    """The counters that journals can tell about; the buckets of a stage as one."""
    stored: Counter[str] = Counter()
    for name, text in counted.items():
        number = int(text) if text.lstrip("-").isdecimal() else -1
        head, *parts = name.split(SEPARATOR)
        if name in _SINGLE or (head in _TYPED | {"decisions"}):
            stored[name] += number
        elif head == "stage" and len(parts) == 2:
            part = "sum" if parts[1] == "sum" else "count"
            stored[_join(head, parts[0], part)] += number
    return stored


def _type_in(name: str) -> str:
    """The action type in a counter field; empty if it has none."""
    head, *parts = name.split(SEPARATOR)
    return parts[0] if head in _TYPED and parts else ""


def _with_type(name: str, action: str) -> str:
    """The same counter field of another action type; of a field without one, no field."""
    head, *parts = name.split(SEPARATOR)
    return _join(head, action, *parts[1:]) if head in _TYPED else ""


def _join(*parts: str) -> str:
    return SEPARATOR.join(parts)
