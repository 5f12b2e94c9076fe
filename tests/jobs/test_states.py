"""The states and their arrows: every pair, through the real store."""

import itertools
import re
from collections import deque

import pytest

from tallystick import State
from tallystick.core.errors import IllegalMove, TallystickError
from tallystick.jobs.record import Record, Tampered
from tallystick.jobs.states import (
    AT_REST,
    BIRTH,
    CLOSED,
    HALTED,
    IN_FLIGHT,
    NEXT,
    OPEN,
    mermaid,
)
from tallystick.metrics import counters
from tallystick.testing import Bench
from tests.driving import counted, key_space, record_of
from tests.targets import DEPOSIT, Bank, deposit

TEN = {"account": "alice", "amount": "10"}
PAIRS = list(itertools.product(State, State))
LEGAL = [(here, there) for here, there in PAIRS if there in NEXT[here]]
ILLEGAL = [(here, there) for here, there in PAIRS if there not in NEXT[here] and here != there]

names = "{0[0]}-{0[1]}".format


def way_to(goal: State) -> list[State]:
    """The shortest way from the proposal, by arrows of the table."""
    ways = deque([[State.WAITING_FOR_APPROVAL]])
    while ways:
        way = ways.popleft()
        if way[-1] is goal:
            return way[1:]
        ways += [[*way, after] for after in sorted(NEXT[way[-1]]) if after not in way]
    pytest.fail(f"no arrow leads to {goal}")


def moved(bench: Bench, record: Record, to: State) -> Record:
    return bench.tally.store.move(record, to, who="test", evidence={"event": "test"})


def action_in(state: State) -> tuple[Bench, Bank, Record]:
    """A stored action that has come to this state by legal moves."""
    bank = Bank()
    bench = Bench(deposit(bank))
    record = record_of(bench, bench.propose(DEPOSIT, TEN).id)
    for step in way_to(state):
        record = moved(bench, record, step)
    assert record_of(bench, record.id).state is state
    return bench, bank, record


def where(bench: Bench, id: str) -> set[str]:
    """The states whose index holds the action."""
    store = bench.tally.store
    return {state for state in State if id in store.ids(state)}


# --- every pair ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", LEGAL, ids=names)
def test_a_legal_move_is_stored_counted_indexed_and_readable(pair: tuple[State, State]) -> None:
    here, there = pair
    bench, _, record = action_in(here)
    field = counters.transition(DEPOSIT, there)
    before = counted(bench).get(field, 0)

    after = moved(bench, record, there)

    assert record_of(bench, record.id).lines == after.lines
    assert (after.state, after.seq) == (there, record.seq + 1)
    assert after.lines[-1].prev == record.head
    assert where(bench, record.id) == {there}
    assert counted(bench)[field] == before + 1


@pytest.mark.parametrize("pair", ILLEGAL, ids=names)
def test_no_illegal_move_is_ever_believed(pair: tuple[State, State]) -> None:
    """Whether the store refuses it or the seals show it: nobody reads it as done."""
    here, there = pair
    bench, bank, record = action_in(here)
    try:
        moved(bench, record, there)
    except TallystickError:
        assert record_of(bench, record.id).state is here
    else:
        with pytest.raises(Tampered, match="not a legal move"):
            record_of(bench, record.id)
    assert bench.tally.get(record.id).state in {here, State.CORRUPT}
    assert bench.run(record.id).state in {here, State.CORRUPT}
    assert bank.calls == []


def test_an_illegal_move_is_refused_and_changes_nothing_but_a_conflict_counter() -> None:
    believed = []
    for here, there in ILLEGAL:
        bench, _, record = action_in(here)
        before = key_space(bench)
        try:
            moved(bench, record, there)
        except TallystickError:
            after = key_space(bench)
            for stored in (before, after):
                stored.pop(bench.tally.store.keys.counters, None)
            assert after == before
        else:
            believed.append(f"{here} -> {there}")
    assert believed == []


@pytest.mark.parametrize("state", State)
def test_a_note_stays_where_it_is(state: State) -> None:
    bench, _, record = action_in(state)
    before = counted(bench)
    noted = moved(bench, record, state)
    assert (noted.state, noted.seq) == (state, record.seq + 1)
    assert record_of(bench, record.id).lines == noted.lines
    assert where(bench, record.id) == {state}
    changed = [name for name in counted(bench) if counted(bench)[name] != before.get(name)]
    assert changed == [counters.MOVES]


@pytest.mark.parametrize("state", State)
def test_only_what_is_approved_or_in_flight_is_ever_sent(state: State) -> None:
    """None of these has a vote, so not even those may be: they are corrupt."""
    bench, bank, record = action_in(state)
    found = bench.run(record.id)
    assert bank.calls == []
    needs_votes = {State.APPROVED, State.ROLLING_BACK, *IN_FLIGHT}
    assert found.state is (State.CORRUPT if state in needs_votes else state)


# --- what callers may ask for --------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(set(State) - {State.CORRUPT}))
def test_only_what_has_not_begun_can_be_cancelled(state: State) -> None:
    bench, _, record = action_in(state)
    if state in {*BIRTH, State.CANCELLED}:
        assert bench.tally.cancel(record.id, by="anna").state is State.CANCELLED
        return
    before = key_space(bench)
    with pytest.raises(IllegalMove, match="Only what has not begun"):
        bench.tally.cancel(record.id, by="anna")
    assert key_space(bench) == before


@pytest.mark.parametrize("state", State)
def test_only_what_waits_is_decided(state: State) -> None:
    bench, _, record = action_in(state)
    if state is State.WAITING_FOR_APPROVAL:
        assert bench.tally.approve(record.id, by="anna").state is State.APPROVED
        return
    before = key_space(bench)
    with pytest.raises(IllegalMove, match="Only what waits for approval"):
        bench.tally.approve(record.id, by="anna")
    with pytest.raises(IllegalMove, match="Only what waits for approval"):
        bench.tally.reject(record.id, by="anna", reason="no")
    assert key_space(bench) == before


@pytest.mark.parametrize("to", [State.COMMITTED, State.ROLLED_BACK, State.ABANDONED])
@pytest.mark.parametrize("state", State)
def test_only_what_halted_is_resolved_by_hand(state: State, to: State) -> None:
    bench, _, record = action_in(state)
    if state in HALTED:
        assert bench.tally.resolve(record.id, to=to, by="eve", evidence="seen").state is to
        assert record_of(bench, record.id).state is to
        return
    before = key_space(bench)
    with pytest.raises(IllegalMove, match="resolved by hand"):
        bench.tally.resolve(record.id, to=to, by="eve", evidence="seen")
    assert key_space(bench) == before


# --- the table itself ----------------------------------------------------------------------------


def test_every_state_has_its_arrows_and_can_be_reached() -> None:
    assert set(NEXT) == set(State)
    for state in State:
        assert all(after in State for after in NEXT[state])
        way_to(state)


def test_open_halted_and_closed_are_a_partition() -> None:
    assert set(State) == OPEN | HALTED | CLOSED
    assert len(OPEN) + len(HALTED) + len(CLOSED) == len(State)
    assert AT_REST == HALTED | CLOSED
    assert IN_FLIGHT < OPEN
    assert BIRTH < OPEN


def test_the_parts_are_those_of_the_design() -> None:
    assert {
        State.WAITING_FOR_APPROVAL,
        State.APPROVED,
        State.RUNNING,
        State.VERIFYING,
        State.ROLLING_BACK,
    } == OPEN
    assert {State.UNKNOWN, State.ROLLBACK_FAILED, State.CORRUPT} == HALTED


def test_nothing_leads_out_of_a_closed_state_but_damage() -> None:
    assert {after for state in CLOSED for after in NEXT[state]} == {State.CORRUPT}


def test_a_person_takes_what_halted_to_three_ends() -> None:
    for state in HALTED:
        assert NEXT[state] - {State.CORRUPT} == {
            State.COMMITTED,
            State.ROLLED_BACK,
            State.ABANDONED,
        }


def test_nothing_is_committed_without_an_intent_or_a_person() -> None:
    before = {state for state in State if State.COMMITTED in NEXT[state]}
    assert before == IN_FLIGHT | HALTED


def test_nothing_is_rolled_back_without_a_rollback_or_a_person() -> None:
    before = {state for state in State if State.ROLLED_BACK in NEXT[state]}
    assert before == {State.ROLLING_BACK} | HALTED


def test_anything_can_be_found_corrupt() -> None:
    assert all(State.CORRUPT in NEXT[state] for state in set(State) - {State.CORRUPT})


def test_the_diagram_shows_every_arrow_but_damage_once() -> None:
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    arrows = [re.fullmatch(r" {4}(\S+) --> (\S+)", line) for line in lines[1:]]
    drawn = [arrow.groups() for arrow in arrows if arrow]
    assert len(drawn) == len(lines) - 1 == len(set(drawn))
    table = {(here, there) for here, there in LEGAL if there is not State.CORRUPT}
    born = {("[*]", State.WAITING_FOR_APPROVAL)}
    assert set(drawn) == table | born | {(state, "[*]") for state in CLOSED}
