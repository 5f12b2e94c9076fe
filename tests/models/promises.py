"""What must be so after every step of a simulated world: each function asserts one promise."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tallystick import State
from tallystick.jobs import consequences
from tallystick.jobs.record import Record
from tallystick.jobs.states import AT_REST, CLOSED, HALTED, OPEN
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.models.target import CROOKED, Target

UNTOUCHED = CLOSED - {State.COMMITTED, State.ROLLED_BACK, State.ABANDONED}
"""These say that nothing was done."""


@dataclass(frozen=True, slots=True)
class Books:
    """Everything that can be looked at, read once. Reading unseals: the journals are whole."""

    bench: Bench
    target: Target
    records: tuple[Record, ...]
    listed: dict[State, set[str]]
    """What each index of a state holds."""

    @classmethod
    def read(cls, bench: Bench, target: Target) -> "Books":
        store = bench.tally.store
        pipe = bench.redis.pipeline(transaction=False)
        for state in State:
            pipe.zrange(store.keys.index(state), 0, -1)
        listed = {state: set(ids) for state, ids in zip(State, pipe.execute(), strict=True)}
        return cls(
            bench,
            target,
            tuple(store.load(id) for ids in listed.values() for id in sorted(ids)),
            listed,
        )

    @property
    def parents(self) -> list[Record]:
        return [record for record in self.records if record.content.compensates is None]

    def child(self, parent: Record) -> Record | None:
        of = [record for record in self.records if record.content.compensates == parent.id]
        assert len(of) <= 1, "an action is compensated once"
        return of[0] if of else None

    def effects(self, record: Record) -> int:
        return self.target.done("undo" if record.content.compensates else "set", record.id)

    def restores(self, parent: Record) -> int:
        child = self.child(parent)
        by_child = self.target.done("undo", child.id) if child else 0
        return self.target.done("undo", parent.id) + by_child


def by_hand(record: Record) -> bool:
    """Whether a person said how it ended."""
    return record.last("resolved") is not None


def at_most_one_effect(books: Books) -> None:
    for record in books.records:
        assert books.effects(record) <= 1, f"{record.id} was done twice"


def undone_only_what_was_done(books: Books) -> None:
    for parent in books.parents:
        assert books.restores(parent) <= books.effects(parent), f"{parent.id} was not there to undo"


def what_is_claimed_is_so(books: Books) -> None:
    for record in books.records:
        if by_hand(record):
            continue
        if record.state is State.COMMITTED:
            assert books.effects(record) == 1, f"{record.id} is committed, and not there"
        if record.state in UNTOUCHED:
            assert books.effects(record) == 0, f"{record.id} is {record.state}, and was done"
        if record.state is State.ROLLED_BACK:
            value = books.target.value(str(record.content.params["item"]))
            ours = CROOKED, record.content.params["value"]
            assert value not in ours, f"{record.id} is rolled back, and {value!r} is there"


def who_waits_keeps_waiting(books: Books) -> None:
    for record in books.records:
        assert record.state is not State.CORRUPT, f"{record.id} is corrupt"
        for line in record.lines:
            left = line.from_state in HALTED and line.to_state != line.from_state
            assert not left or line.event == "resolved", f"{record.id} left {line.from_state}"


def nothing_is_undone_behind_ones_back(books: Books) -> None:
    for parent in books.parents:
        child = books.child(parent)
        if child and child.state in OPEN and child.attempts:
            assert parent.state is State.ROLLING_BACK, f"{child.id} undoes {parent.state}"


def every_effect_was_intended(books: Books) -> None:
    intents = {
        (record.id, line.token) for record in books.records for line in record.events(*_INTENTS)
    }
    for call in books.target.ledger:
        assert (call.action, call.token) in intents, f"{call} was not intended"


_INTENTS = ("intent", "undo")


def every_failure_is_told(books: Books) -> None:
    """Each line that enters a failure, and late evidence on what waits for a person, has one alert;
    nothing else has."""
    told = Counter(
        (alert["id"], alert["seq"])
        for alert in map(json.loads, books.bench.tally.store.alerts(limit=10_000))
    )
    calls = Counter(
        (record.id, line.seq)
        for record in books.records
        for line in record.lines
        if line.event != "resolved"
        and (
            (line.to_state in _FAILURES and line.from_state != line.to_state)
            or (line.event == "late_evidence" and line.to_state in HALTED)
        )
    )
    assert told == calls, f"the alerts {told} are not those of the journals, {calls}"


_FAILURES = HALTED | {State.FAILED, State.ROLLING_BACK}


def counters_equal_journals(books: Books) -> None:
    """What was counted, and who waits for a person, follows from the lines that are there."""
    wanted: Counter[str] = Counter()
    waits: dict[str, str] = {}
    for record in books.records:
        for line in record.lines:
            follows = consequences.of(line, id=record.id, action=record.content.action)
            wanted.update(follows.bump)
            if follows.attention is not None:
                waits[record.id] = follows.attention
    wanted.update(field for field in waits.values() if field)
    stored = books.bench.tally.store.snapshot().counters
    families = {field.split(counters.SEPARATOR)[0] for field in wanted} | {"attention"}
    counted = {
        field: number
        for field, number in stored.items()
        if number and field.split(counters.SEPARATOR)[0] in families
    }
    assert counted == wanted, f"counted {counted}, and the journals say {wanted}"


def each_is_listed_where_it_is(books: Books) -> None:
    for state, ids in books.listed.items():
        there = {record.id for record in books.records if record.state is state}
        assert ids == there, f"{state} lists {ids}, and holds {there}"


ALL: tuple[Callable[[Books], None], ...] = (
    at_most_one_effect,
    undone_only_what_was_done,
    what_is_claimed_is_so,
    who_waits_keeps_waiting,
    nothing_is_undone_behind_ones_back,
    every_effect_was_intended,
    every_failure_is_told,
    counters_equal_journals,
    each_is_listed_where_it_is,
)


def nothing_is_left_behind(books: Books) -> None:
    """For the end: by itself, everything that was approved comes to rest."""
    for record in books.records:
        assert record.state in AT_REST | {State.WAITING_FOR_APPROVAL}, f"{record.id} is stuck"
