"""How things stand: what is told of waiting, running, halted and called-for actions, and at what
cost."""

from datetime import timedelta
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from tallystick import Action, Context, InBand, NotApplied, OutOfBand, Policy, State, Verdict
from tallystick.jobs.overview import Overview
from tallystick.jobs.survey import UNDER_WAY
from tallystick.rollback import Rollback
from tallystick.testing import Bench


class World:
    """One number, and how the next effect goes."""

    value = 0
    trouble = ""


class Put(Action):
    """Put a number."""

    name = "number.put"
    rollback: ClassVar[Rollback] = InBand("undo")

    class Params(BaseModel):
        """The number."""

        to: int

    def observe(self, params: Any) -> Any:
        return World.value

    def execute(self, params: Any, context: Context) -> Any:
        if World.trouble == "refused":
            raise NotApplied("no")
        if World.trouble == "broken":
            raise RuntimeError("the line is dead")
        World.value = params.to + (World.trouble == "wrong")

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected=params.to, observed=now)

    def undo(self, params: Any, before: Any, result: Any, context: Context) -> None:
        World.value = before


class PutSoon(Put):
    """Put a number, with a short window for two approvals."""

    name = "number.put-soon"
    rollback: ClassVar[Rollback] = OutOfBand("docs/number.md")
    policy = Policy(quorum=2, expires_after=timedelta(minutes=5))


class PutFreely(Put):
    """Put a number, which its proposer may approve."""

    name = "number.put-freely"
    policy = Policy(proposer_may_approve=True)


@pytest.fixture
def bench() -> Bench:
    World.value, World.trouble = 0, ""
    return Bench(Put, PutSoon, PutFreely)


def seen(bench: Bench, limit: int = 10) -> Overview:
    return bench.tally.overview(limit=limit)


def names(found: Overview) -> list[str]:
    return [problem.name for problem in found.problems]


def ended(bench: Bench, trouble: str, to: int = 1) -> str:
    """An action that ended in this trouble."""
    World.value, World.trouble = 0, trouble
    id = bench.approved("number.put", {"to": to})
    bench.run(id)
    World.trouble = ""
    return id


# --- is everything safe? -------------------------------------------------------------------------


def test_an_empty_store_is_safe(bench: Bench) -> None:
    found = seen(bench)
    assert found.safe
    assert (found.waiting, found.under_way, found.calling, found.stops) == ((), (), (), ())
    assert set(found.actions) == set(State)
    assert set(found.actions.values()) == {0}
    assert found.oldest_due is None


def test_work_that_nobody_does_is_a_problem_until_a_worker_lives(bench: Bench) -> None:
    bench.approved("number.put", {"to": 1})
    [problem] = seen(bench).problems
    assert (problem.name, problem.next) == ("no_workers", "tallystick worker")
    assert "1 action" in problem.what
    bench.tally.store.heartbeat(["host:1", "host:2"])
    found = seen(bench)
    assert found.safe
    assert (found.workers, found.worker_names) == (2, ("host:1", "host:2"))


def test_what_only_waits_for_approval_needs_no_worker(bench: Bench) -> None:
    bench.propose("number.put", {"to": 1})
    assert seen(bench).safe


def test_what_should_have_been_looked_at_is_overdue(bench: Bench) -> None:
    id = bench.approved("number.put", {"to": 1})
    bench.tally.store.heartbeat(["host:1"])
    now = bench.tally.store.survey(limit=1).now
    bench.tally.store.postpone(id, until_ms=now - 60_000)
    found = seen(bench)
    assert names(found) == ["overdue"]
    assert found.overdue == 1
    assert found.oldest_due is not None
    assert found.oldest_due < found.at


def test_one_action_that_calls_is_shown_by_its_own_command(bench: Bench) -> None:
    id = ended(bench, "broken")
    bench.tally.store.heartbeat(["host:1"])
    found = seen(bench)
    assert names(found) == ["needs_a_person"]
    assert found.problems[0].next == f"tallystick show {id}"
    assert (found.halted, found.unacknowledged) == (1, 1)


def test_several_are_listed_and_so_are_those_that_were_acknowledged_and_not_decided(
    bench: Bench,
) -> None:
    ids = [ended(bench, "broken", to) for to in (1, 2)]
    bench.tally.store.heartbeat(["host:1"])
    assert seen(bench).problems[0].next == "tallystick list --attention"
    for id in ids:
        bench.tally.acknowledge(id, by="oncall")
    found = seen(bench)
    assert found.problems[0].next == "tallystick list --state unknown"
    assert (found.halted, found.unacknowledged) == (2, 0)
    for id in ids:
        bench.tally.resolve(id, to="abandoned", by="oncall", evidence="looked")
    assert seen(bench).calling == ()
    assert "needs_a_person" not in names(seen(bench))


# --- who must do what ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "state", "reason"),
    [
        ("broken", State.UNKNOWN, "outcome_unknown"),
        ("refused", State.FAILED, "not_applied"),
        ("wrong", State.ROLLED_BACK, "verification_failed"),
    ],
)
def test_whatever_called_a_person_is_named_until_it_is_answered(
    bench: Bench, trouble: str, state: State, reason: str
) -> None:
    id = ended(bench, trouble)
    [row] = seen(bench).calling
    assert (row.id, row.action, row.state, row.reason) == (id, "number.put", state, reason)
    assert (row.acknowledged, row.next) == (False, f"tallystick show {id}")
    bench.tally.acknowledge(id, by="oncall")
    rows = seen(bench).calling
    assert [(row.id, row.acknowledged, row.reason) for row in rows] == (
        [(id, True, "")] if state is State.UNKNOWN else []
    )
    assert [row.action for row in rows] in ([], ["number.put"])


def test_what_was_not_acknowledged_comes_first_and_the_newest_of_it(bench: Bench) -> None:
    first, second, third = (ended(bench, "broken", to) for to in (1, 2, 3))
    keys = bench.tally.store.keys
    for at, id in enumerate((first, second, third)):
        bench.redis.zadd(keys.index(State.UNKNOWN), {id: 1_000_000 + at})
    bench.tally.acknowledge(third, by="oncall")
    assert [row.id for row in seen(bench).calling] == [second, first, third]
    assert [row.id for row in seen(bench, limit=1).calling] == [second]


def test_an_action_lacks_votes_from_anybody_but_these(bench: Bench) -> None:
    id = bench.propose("number.put-soon", {"to": 1}, by="erin").id
    [row] = seen(bench).waiting
    assert (row.id, row.quorum, row.missing, row.not_by) == (id, 2, 2, ("erin",))
    bench.tally.approve(id, by="dana")
    [row] = seen(bench).waiting
    assert (row.missing, row.not_by) == (1, ("erin", "dana"))
    assert row.expires_at == bench.tally.get(id).expires_at


def test_a_proposer_who_may_approve_is_not_excluded(bench: Bench) -> None:
    bench.propose("number.put-freely", {"to": 1}, by="erin")
    assert seen(bench).waiting[0].not_by == ()


def test_whose_window_ends_soonest_comes_first_however_many_came_before(bench: Bench) -> None:
    for to in range(30):
        bench.propose("number.put", {"to": to})
    soon = bench.propose("number.put-soon", {"to": 1}).id
    found = seen(bench, limit=3)
    assert found.waiting[0].id == soon
    assert len(found.waiting) == 3
    assert found.actions[State.WAITING_FOR_APPROVAL] == 31


def test_a_window_that_is_over_is_shown_while_nobody_has_closed_it(bench: Bench) -> None:
    id = bench.propose("number.put", {"to": 1}).id
    bench.redis.zadd(bench.tally.store.keys.due, {id: 1})
    assert [row.id for row in seen(bench).waiting] == [id]


def test_what_runs_is_shown_with_its_worker_and_what_is_left_of_its_lease(bench: Bench) -> None:
    held, lost = (bench.approved("number.put", {"to": to}) for to in (1, 2))
    for id in (held, lost):
        bench.crash(id, "after_intent")
    keys = bench.tally.store.keys
    bench.redis.set(keys.lease(held), "somebody", px=5000)
    bench.redis.zadd(keys.index(State.RUNNING), {held: 1})
    rows = {row.id: row for row in seen(bench).under_way}
    assert list(rows) == [held, lost]
    left = rows[held].lease_seconds
    assert left is not None
    assert 0 < left <= 5
    assert rows[lost].lease_seconds is None
    assert (rows[lost].worker, rows[lost].attempts, rows[lost].state) == ("bench-2", 1, "running")


def test_a_stop_is_told_with_who_and_why(bench: Bench) -> None:
    bench.tally.stop(by="dana", reason="double bookings", action="number.put")
    [stop] = seen(bench).stops
    assert (stop.scope, stop.who, stop.why) == ("number.put", "dana", "double bookings")
    assert seen(bench).safe


# --- numbers -------------------------------------------------------------------------------------


def test_the_last_hour_is_counted_and_what_came_before_is_not(bench: Bench) -> None:
    old, _new = ended(bench, "", 1), ended(bench, "", 2)
    ended(bench, "refused")
    bench.redis.zadd(bench.tally.store.keys.index(State.COMMITTED), {old: 1})
    found = seen(bench)
    assert found.last_hour == {"committed": 1, "failed": 1}
    assert found.actions[State.COMMITTED] == 2


def test_entries_into_a_state_are_counted_over_all_types(bench: Bench) -> None:
    bench.run(bench.approved("number.put", {"to": 1}))
    bench.run(bench.approved("number.put-freely", {"to": 2}))
    found = seen(bench)
    assert {name: n for name, n in found.entered.items() if n} == {
        "waiting_for_approval": 2,
        "approved": 2,
        "running": 2,
        "verifying": 2,
        "committed": 2,
    }


def test_the_oldest_of_each_open_state_is_dated(bench: Bench) -> None:
    id = bench.propose("number.put", {"to": 1}).id
    assert seen(bench).oldest == {"waiting_for_approval": bench.tally.get(id).created_at}


# --- a store that somebody else has written to ---------------------------------------------------


def test_whatever_lies_in_the_indexes_something_is_shown(bench: Bench) -> None:
    keys, evil = bench.tally.store.keys, "\x1b[2J[bold]\n"
    for state in (*UNDER_WAY, State.WAITING_FOR_APPROVAL, State.UNKNOWN, State.COMMITTED):
        bench.redis.zadd(keys.index(state), {evil: float("inf"), "gone": float("-inf")})
    bench.redis.zadd(keys.due, {evil: float("inf"), "gone": float("-inf")})
    bench.redis.hset(keys.attention, mapping={evil: evil, "x": "attention|a|b|c|d", "y": ""})
    bench.redis.hset(keys.counters, "transitions|a|nowhere", 7)
    bench.redis.zadd(keys.workers, {evil: float("inf")})
    found = seen(bench)
    assert found.actions[State.UNKNOWN] == 2
    assert {row.id for row in found.calling} >= {evil, "x"}
    assert found.waiting == ()
    assert {row.action for row in found.under_way} == {""}
    assert Overview.model_validate_json(found.model_dump_json(exclude={"safe"})) == found


def test_a_damaged_action_is_named_without_believing_it(bench: Bench) -> None:
    id = bench.approved("number.put", {"to": 1})
    bench.crash(id, "after_intent")
    bench.redis.hset(bench.tally.store.keys.action(id), "content", "{}")
    [row] = seen(bench).under_way
    assert (row.id, row.action, row.worker) == (id, "", "")


# --- at what cost --------------------------------------------------------------------------------


def commands_of(bench: Bench, limit: int) -> tuple[int, int]:
    """How many commands one look sends, and how many values it is given."""
    sent, given = 0, 0
    execute: Any = bench.redis.execute_command
    connection: Any = bench.redis.connection_pool.get_connection()
    read = type(connection).read_response

    def counted(*words: Any, **options: Any) -> Any:
        nonlocal sent
        sent += 1
        return execute(*words, **options)

    def measured(self: Any, *words: Any, **options: Any) -> Any:
        nonlocal given
        reply = read(self, *words, **options)
        given += _size(reply)
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.redis, "execute_command", counted)
        patch.setattr(type(connection), "read_response", measured)
        seen(bench, limit=limit)
    return sent, given


def _size(reply: Any) -> int:
    return sum(map(_size, reply)) if isinstance(reply, list | tuple) else 1


def test_a_look_costs_the_same_with_thousands_of_actions_and_with_ten_times_as_many(
    bench: Bench,
) -> None:
    keys = bench.tally.store.keys
    for to in range(6):
        bench.propose("number.put", {"to": to})
        ended(bench, "broken", to)
        bench.crash(bench.approved("number.put", {"to": World.value}), "after_intent")

    def grow(number: int) -> None:
        """The indexes as so many more actions would make them."""
        later = {f"{at:016x}": 4e12 + at for at in range(number)}
        earlier = {f"{at:016x}": 1e12 - at for at in range(number)}
        bench.redis.zadd(keys.due, later)
        bench.redis.zadd(keys.index(State.WAITING_FOR_APPROVAL), later)
        for state in (State.UNKNOWN, State.COMMITTED):
            bench.redis.zadd(keys.index(state), earlier)
        bench.redis.hset(keys.attention, mapping=dict.fromkeys(later, "attention|a|b"))

    grow(2_000)
    few = commands_of(bench, 5)
    grow(10_000)
    many = commands_of(bench, 5)
    assert seen(bench, 5).unacknowledged > 10_000
    assert many[0] == few[0] > 5
    assert abs(many[1] - few[1]) < 200
    assert few[1] > 1000
