"""Deliberately broken variants of the protocol, each of which the matrix must catch: what was tried
and dropped, what others do, and what once was wrong here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from tallystick import Context, Protection, State, Verdict
from tallystick.core.canonical import Json
from tallystick.core.errors import StoreUnavailable
from tallystick.jobs import run, wire
from tallystick.jobs.attempt import Attempt, Look, boottime
from tallystick.jobs.decision import Decided, Reply, Seen, Situation, Step
from tallystick.jobs.record import Line, Record, Tip
from tallystick.jobs.store import Store
from tests.crash.actions import COMMIT, COMPENSATED, IN_BAND
from tests.crash.mutants import Mutant, Rule, replaced, rule, script, together
from tests.crash.plan import Unit
from tests.crash.scenario import Victim


def _send(attempt: Attempt) -> None:
    attempt.checkpoint("before_effect")
    attempt.call(lambda context: attempt.spec.execute(attempt.params, context), boottime())


def _lease_then_act(attempt: Attempt, *, before: Json, **facts: Any) -> None:
    """Look at the lease, act, and write down afterwards that it ran."""
    attempt.last_look()
    _send(attempt)
    learned = attempt.learned
    attempt.move(State.RUNNING, "ran", before=before, **facts)
    attempt.move(State.VERIFYING, "replied", **learned)


def _intent_after_effect(attempt: Attempt, *, before: Json, **facts: Any) -> None:
    _send(attempt)
    learned = attempt.learned
    number = attempt.record.attempts + 1
    attempt.move(State.RUNNING, "intent", lease="hold", attempt=number, before=before, **facts)
    attempt.move(State.VERIFYING, "replied", **learned)


def _mark_done_first(attempt: Attempt, *, before: Json, **facts: Any) -> None:
    number = attempt.record.attempts + 1
    attempt.move(State.RUNNING, "intent", lease="hold", attempt=number, before=before, **facts)
    result = {"value": getattr(attempt.params, "value", None)}
    attempt.move(State.VERIFYING, "replied", reply="ok", result=result, why="")
    _send(attempt)


def _not_verified(attempt: Attempt, before: Json, result: Json, reply: Reply) -> Look:
    return Look(Seen.OURS, Verdict.holds(observed=result), result)


def _never_grows(tip: Tip, to: str, **facts: Any) -> Line:
    """The next line of the journal; a claim takes the token that is there."""
    if facts.get("token") is not None:
        facts["token"] = max(tip.token, 1)
    return _line(tip, to, **facts)


_line = Tip.line


@contextmanager
def _runs_before_approval() -> Iterator[None]:
    """Silence is taken for a yes."""
    believe = run.Runner._believe

    def wrong(runner: run.Runner, stored: Any) -> Record | None:
        record = believe(runner, stored)
        if record and record.state is State.WAITING_FOR_APPROVAL:
            evidence = {"event": "timed_out"}
            return runner.store.move(record, State.APPROVED, who="clock", evidence=evidence)
        return record

    with (
        mock.patch.object(run, "stricter_policy", return_value=""),
        mock.patch.object(run.Runner, "_believe", wrong),
        mock.patch.object(run, "check_authority", return_value=None),
    ):
        yield


def _anyway(other: Step) -> Rule:
    return lambda at, right: other if right.step is Step.HALT else right.step


def _if_absent_again(at: Situation, right: Decided) -> Step:
    plain = at.protection is Protection.READABLE and at.seen is Seen.ABSENT
    return Step.RESEND_KEY if plain and at.reply is Reply.NONE else right.step


def _pipeline_again(wire: wire.Wire, commands: Callable[[Any], object]) -> list[Any]:
    """A pipeline that failed is empty, and is sent again as it is."""
    pipe = wire._client.pipeline(transaction=True)
    commands(pipe)
    return list(wire._repeat(pipe.execute))


_context = Attempt.context


def _approved_version(attempt: Attempt, deadline: float, *, key: str | None = None) -> Context:
    """An undo under the version that was approved, not the one that our effect left."""
    right = _context(attempt, deadline, key=key)
    version = attempt.spec.version_of(attempt.record.content.observed)
    return replace(right, expected_version=version)


def _says_nothing(attempt: Attempt, why: str) -> None:
    """An intent that was not confirmed stays as it is."""
    raise StoreUnavailable(url="redis", problem=why)


_move = Attempt.move


def _takes_it_back(attempt: Attempt, to: State, event: str, **given: Any) -> None:
    """The action is let go after its effect as if that had not been sent."""
    if event == "replied" and not attempt.record.events("withheld"):
        attempt.withhold("it was not")
    _move(attempt, to, event, **given)


READABLE, BLIND, FENCED = Protection.READABLE, Protection.BLIND, Protection.FENCED
BOTH, FROZEN, CUT, CALL = Victim.BOTH, Victim.FROZEN, Victim.CONNECTION, Victim.CALL
UNHEARD = Victim.UNHEARD

_CLEAN = (Unit(READABLE, COMMIT, None),)
_DEATHS = (Unit(READABLE, COMMIT, BOTH), Unit(BLIND, COMMIT, BOTH))
_FREEZES = (Unit(READABLE, COMMIT, FROZEN), Unit(BLIND, COMMIT, FROZEN))
_CUTS = (Unit(READABLE, COMMIT, CUT), Unit(READABLE, IN_BAND, CUT))

_TWICE = ("at_most_one_effect",)
_CLAIM = ("what_is_claimed_is_so",)
_INTENT = ("every_effect_was_intended",)
_PLACE = ("it_is_found_where_it_belongs",)
_SILENT = ("no_failure_is_silent",)
_END = ("it_ends_where_it_may",)
_CHAIN = ("the_journal_is_whole",)

MUTANTS = (
    Mutant("run again instead of halt", rule(_anyway(Step.RESEND_KEY)), _DEATHS, _TWICE),
    Mutant("read absent, then run again", rule(_if_absent_again), _FREEZES, _TWICE),
    Mutant("commit what is not known", rule(_anyway(Step.SETTLE)), _DEATHS, _CLAIM),
    Mutant("commit without a look", replaced(run, "verify", _not_verified),
           (Unit(READABLE, IN_BAND, None), *_DEATHS), _CLAIM),
    Mutant("look at the lease, then act", replaced(run, "act", _lease_then_act), _DEATHS, _INTENT),
    Mutant("intent after the effect", replaced(run, "act", _intent_after_effect),
           _DEATHS, _INTENT),
    Mutant("mark as done first", replaced(run, "act", _mark_done_first), _DEATHS, _CLAIM),
    Mutant("lease without a fence",
           together(replaced(Tip, "line", _never_grows),
                    script("move", ("if change.fence then\n", "if false then\n"))),
           (Unit(FENCED, COMMIT, FROZEN, FROZEN, 2, 2),), ("tokens_grow", *_TWICE)),
    Mutant("fence not raised before the read",
           replaced(Attempt, "raise_fence", lambda attempt: ""),
           (Unit(FENCED, COMMIT, FROZEN, FROZEN, 2, 1, offset=1),), _TWICE),
    Mutant("rolled back without a look", rule(_anyway(Step.SETTLE), undoing=True),
           (Unit(READABLE, IN_BAND, BOTH), Unit(BLIND, IN_BAND, BOTH)), _CLAIM),
    Mutant("undo again", rule(_anyway(Step.RESEND_KEY), undoing=True),
           (Unit(READABLE, IN_BAND, FROZEN),), _TWICE),
    Mutant("undo under the version that was approved",
           replaced(Attempt, "context", _approved_version),
           (Unit(Protection.VERSIONED, IN_BAND, None),), _END),
    Mutant("late evidence is dropped",
           replaced(Attempt, "testify", lambda attempt, lost: None),
           _FREEZES, ("late_effects_are_told",)),
    Mutant("silence is taken for a yes", _runs_before_approval,
           _CLEAN, ("every_effect_was_approved",)),
    Mutant("move without comparing state, token, owner and head",
           script("move", ("if stored[1] ~= guard.state", "if false"),
                  ("if stored[2] ~= guard.token", "if false"),
                  ("if stored[3] ~= guard.owner", "if false"),
                  ("if stored[4] ~= guard.head", "if false")),
           _FREEZES, (*_TWICE, *_CHAIN)),
    Mutant("what was not sent is not said",
           together(replaced(wire.Wire, "_repeat", lambda wire, call: call()),
                    replaced(Attempt, "withhold", _says_nothing)),
           _CUTS, _END),
    Mutant("what was sent is said not to be", replaced(Attempt, "move", _takes_it_back),
           (Unit(BLIND, COMMIT, CUT),), _TWICE),
    Mutant("a failed pipeline is sent again", replaced(wire.Wire, "_together", _pipeline_again),
           (Unit(READABLE, COMPENSATED, CUT),), ("only_store_errors_are_raised",)),
    Mutant("a claim takes it off the schedule",
           script("move", ("change.due_ms >= 0 then",
                           "change.due_ms >= 0 and change.lease ~= 'take' then")),
           _DEATHS, ("nothing_is_stuck",)),
    Mutant("no alert in the outbox", script("move", ("if change.alert then", "if false then")),
           _DEATHS, _SILENT),
    Mutant("nobody is called", script("move", ("if change.attention then", "if false then")),
           _DEATHS, _SILENT),
    Mutant("a move that is not journaled",
           script("move", ("append(KEYS[2], at, ARGV[3])",
                           "if change.lease ~= 'drop' then append(KEYS[2], at, ARGV[3]) end")),
           _CLEAN, _CHAIN),
    Mutant("the index is not kept",
           script("move", ("redis.call('ZREM', KEYS[5], id)", "local _ = id")), _CLEAN, _PLACE),
    Mutant("the lease is not dropped",
           script("move", ("redis.call('DEL', KEYS[3])", "local _ = id")), _CLEAN, _PLACE),
    Mutant("two sends under one fencing token",
           replaced(Attempt, "fresh_token", lambda attempt: None),
           (Unit(FENCED, COMMIT, CALL, CALL),), _TWICE),
    Mutant("a step that is found done is taken for the claim",
           replaced(Store, "_still_ours", staticmethod(lambda record, fresh: True)),
           (Unit(FENCED, COMMIT, UNHEARD, FROZEN, 100, offset=5),
            Unit(READABLE, IN_BAND, UNHEARD, FROZEN, 100, offset=13)),
           (*_TWICE, *_INTENT)),
    Mutant("the idempotency key is not SET NX, and compensations are born without a claim",
           script("propose", ("if mark then return", "if false then return"),
                  ("redis.call('SET', KEYS[1], ARGV[2], 'NX')",
                   "redis.call('SET', KEYS[1], ARGV[2])"),
                  ("if found ~= value then", "if false then")),
           (Unit(READABLE, COMPENSATED, FROZEN),), (*_TWICE, *_PLACE)),
)  # fmt: skip
