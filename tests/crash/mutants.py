"""Deliberately broken variants of the protocol, each of which the matrix must catch.

A mutant is a context manager that patches this process; a script is broken in its text. `where` are
the units in which it shows.
"""

import importlib.resources as resources
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from typing import Any
from unittest import mock

from tallystick import Protection, State, Verdict
from tallystick.core.canonical import Json
from tallystick.jobs import run, undo, wire
from tallystick.jobs.attempt import Attempt, Look, boottime
from tallystick.jobs.decision import Decided, Reply, Seen, Situation, Stage, Step, decide
from tallystick.jobs.record import Line, Record, Tip
from tests.crash.actions import COMMIT, COMPENSATED, IN_BAND
from tests.crash.inprocess import Place
from tests.crash.plan import Unit
from tests.crash.scenario import Outcome, Victim

Break = Callable[[], AbstractContextManager[Any]]
Rule = Callable[[Situation, Decided], Step]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken variant."""

    name: str
    breaks: Break
    where: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Caught:
    """What the matrix saw of a mutant: in how many of its scenarios, and by which checks."""

    name: str
    scenarios: int
    violated: int
    checks: tuple[str, ...]
    first: str


def hunt(mutant: Mutant, place: Place) -> Caught:
    """Play the mutant's units with it, and tell what was caught."""
    outcomes: list[Outcome] = []
    with mutant.breaks():
        for unit in mutant.where:
            outcomes += unit.run(place.play)
    bad = [outcome for outcome in outcomes if outcome.violations]
    checks = sorted({violation.check for outcome in bad for violation in outcome.violations})
    first = f"{bad[0].scenario}: {bad[0].violations[0]}" if bad else ""
    return Caught(mutant.name, len(outcomes), len(bad), tuple(checks), first)


# --- how things are broken -----------------------------------------------------------------------


def rule(step: Rule, *, undoing: bool = False) -> Break:
    """Overrule the decision table, while acting or while undoing."""
    module = undo if undoing else run
    stage = Stage.UNDOING if undoing else Stage.ACTING

    def wrong(at: Situation) -> Decided:
        right = decide(at)
        return replace(right, step=step(at, right)) if at.stage is stage else right

    return lambda: mock.patch.object(module, "decide", wrong)


def script(name: str, *edits: tuple[str, str]) -> Break:
    """Replace text of a Lua script."""

    class Edited:
        def __init__(self, real: Traversable) -> None:
            self._real = real

        def __truediv__(self, part: str) -> "Edited":
            return Edited(self._real / part)

        def read_text(self) -> str:
            text = self._real.read_text()
            for old, new in edits if self._real.name == f"{name}.lua" else ():
                assert old in text, f"{name}.lua has no {old!r} to break"
                text = text.replace(old, new)
            return text

    files = resources.files
    return lambda: mock.patch.object(wire, "files", lambda package: Edited(files(package)))


def replaced(owner: object, name: str, new: Callable[..., Any]) -> Break:
    """Put a function in the place of another."""
    assert hasattr(owner, name)
    return lambda: mock.patch.object(owner, name, new)


def together(*breaks: Break) -> Break:
    """Several at once."""

    @contextmanager
    def all_of_them() -> Iterator[None]:
        with ExitStack() as stack:
            for one in breaks:
                stack.enter_context(one())
            yield

    return all_of_them


# --- the variants --------------------------------------------------------------------------------


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
        mock.patch.object(run.Runner, "_check_authority", return_value=None),
    ):
        yield


def _anyway(other: Step) -> Rule:
    return lambda at, right: other if right.step is Step.HALT else right.step


def _if_absent_again(at: Situation, right: Decided) -> Step:
    plain = at.protection is Protection.READABLE and at.seen is Seen.ABSENT
    return Step.RESEND_KEY if plain and at.reply is Reply.NONE else right.step


READABLE, BLIND, FENCED = Protection.READABLE, Protection.BLIND, Protection.FENCED
KEYED, VERSIONED = Protection.KEYED, Protection.VERSIONED
BOTH, HORSE, FROZEN, CUT = Victim.BOTH, Victim.HORSE, Victim.FROZEN, Victim.CONNECTION

_DEATHS = (Unit(READABLE, COMMIT, BOTH), Unit(BLIND, COMMIT, BOTH))
_FREEZES = (Unit(READABLE, COMMIT, FROZEN), Unit(BLIND, COMMIT, FROZEN))

MUTANTS = (
    Mutant("run again instead of halt", rule(_anyway(Step.RESEND_KEY)), _DEATHS),
    Mutant("read absent, then run again", rule(_if_absent_again), _FREEZES),
    Mutant("commit what is not known", rule(_anyway(Step.SETTLE)), _DEATHS),
    Mutant("commit without a look", replaced(run, "verify", _not_verified),
           (Unit(READABLE, IN_BAND, None), *_DEATHS)),
    Mutant("look at the lease, then act", replaced(run, "act", _lease_then_act), _DEATHS),
    Mutant("intent after the effect", replaced(run, "act", _intent_after_effect), _DEATHS),
    Mutant("mark as done first", replaced(run, "act", _mark_done_first), _DEATHS),
    Mutant("lease without a fence",
           together(replaced(Tip, "line", _never_grows),
                    script("move", ("if change.fence then\n", "if false then\n"))),
           (Unit(FENCED, COMMIT, FROZEN, FROZEN, 2, 2),)),
    Mutant("fence not raised before the read",
           replaced(Attempt, "raise_fence", lambda attempt: None),
           (Unit(FENCED, COMMIT, FROZEN, FROZEN),)),
    Mutant("rolled back without a look", rule(_anyway(Step.SETTLE), undoing=True),
           (Unit(READABLE, IN_BAND, BOTH), Unit(BLIND, IN_BAND, BOTH))),
    Mutant("undo again", rule(_anyway(Step.RESEND_KEY), undoing=True),
           (Unit(READABLE, IN_BAND, FROZEN), Unit(READABLE, IN_BAND, BOTH))),
    Mutant("late evidence is dropped", replaced(Attempt, "testify", lambda attempt, lost: None),
           _FREEZES),
    Mutant("runs before the approval", _runs_before_approval, (Unit(READABLE, COMMIT, None),)),
    Mutant("move without comparing state, token, owner and head",
           script("move", ("if stored[1] ~= guard.state", "if false"),
                  ("if stored[2] ~= guard.token", "if false"),
                  ("if stored[3] ~= guard.owner", "if false"),
                  ("if stored[4] ~= guard.head", "if false")),
           _FREEZES),
    Mutant("a lost reply is not asked for again",
           replaced(wire.Wire, "_repeat", lambda wire, call: call()),
           (Unit(READABLE, COMMIT, CUT), Unit(READABLE, IN_BAND, CUT))),
    Mutant("a claim takes it off the schedule",
           script("move", ("change.due_ms >= 0 then",
                           "change.due_ms >= 0 and change.lease ~= 'take' then")),
           _DEATHS),
    Mutant("no alert in the outbox", script("move", ("if change.alert then", "if false then")),
           _DEATHS),
    Mutant("nobody is called", script("move", ("if change.attention then", "if false then")),
           _DEATHS),
    Mutant("a move that is not journaled",
           script("move", ("append(KEYS[2], at, ARGV[3])",
                           "if change.lease ~= 'drop' then append(KEYS[2], at, ARGV[3]) end")),
           (Unit(READABLE, COMMIT, None),)),
    Mutant("the index is not kept",
           script("move", ("redis.call('ZREM', KEYS[5], id)", "local _ = id")),
           (Unit(READABLE, COMMIT, None),)),
    Mutant("the lease is not dropped",
           script("move", ("redis.call('DEL', KEYS[3])", "local _ = id")),
           (Unit(READABLE, COMMIT, None),)),
    Mutant("the idempotency key is not SET NX",
           script("propose", ("if mark then return", "if false then return"),
                  ("redis.call('SET', KEYS[1], ARGV[2], 'NX')",
                   "redis.call('SET', KEYS[1], ARGV[2])")),
           (Unit(READABLE, COMPENSATED, FROZEN),)),
)  # fmt: skip
