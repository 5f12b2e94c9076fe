"""Hypothesis on the real code: workers, target and people in any order, judged after each step.

`STATEFUL_EXAMPLES=5000 pytest tests/models/test_stateful.py` looks longer, and elsewhere each time.
"""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tallystick import Protection, Verdict
from tallystick.jobs import consequences, run
from tallystick.jobs.attempt import Attempt, Look
from tallystick.jobs.decision import Decided, Reply, Seen, Situation, Stage, Step, decide
from tests.models.machine import ProtocolMachine

EXAMPLES = int(os.environ.get("STATEFUL_EXAMPLES", "0"))

NORMAL = settings(
    max_examples=40,
    stateful_step_count=30,
    derandomize=True,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LONG = settings(NORMAL, derandomize=False, max_examples=EXAMPLES or 1, stateful_step_count=60)
UNTIL_FOUND = settings(NORMAL, max_examples=300, phases=[Phase.generate])


def machine(of: Protection) -> type[ProtocolMachine]:
    return type(f"{of.name.title()}Machine", (ProtocolMachine,), {"protection": of})


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of lost leases are not worth a log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(0 if EXAMPLES else 120)
@pytest.mark.parametrize("protection", Protection)
def test_whatever_happens_the_promises_are_kept(protection: Protection) -> None:
    run_state_machine_as_test(machine(protection), settings=LONG if EXAMPLES else NORMAL)


# --- it can fail ---------------------------------------------------------------------------------


def run_again(at: Situation) -> Decided:
    decided = decide(at)
    unfinished = at.stage is Stage.ACTING and decided.step is Step.HALT
    return Decided(Step.RESEND_KEY, 0) if unfinished and at.attempts_left else decided


def run_again_if_absent(at: Situation) -> Decided:
    return run_again(at) if at.seen is Seen.ABSENT else decide(at)


def believe_the_answer(attempt: Attempt, before: object, result: object, reply: Reply) -> Look:
    if reply is Reply.OK:
        return Look(Seen.OURS, Verdict.holds(observed=result), None)
    return REAL_VERIFY(attempt, before, result, reply)  # type: ignore[arg-type]


def call_nobody(*given: object, **named: object) -> consequences.Consequences:
    return replace(REAL_FOLLOWS(*given, **named), alert=None)  # type: ignore[arg-type]


REAL_VERIFY, REAL_FOLLOWS = run.verify, consequences.of


@pytest.mark.parametrize(
    ("owner", "name", "mutant", "protection", "promise"),
    [
        (run, "decide", run_again, Protection.READABLE, "done twice"),
        (run, "decide", run_again, Protection.BLIND, "done twice"),
        (run, "decide", run_again_if_absent, Protection.READABLE, "done twice"),
        (run, "verify", believe_the_answer, Protection.KEYED, "committed, and not there"),
        (consequences, "of", call_nobody, Protection.VERSIONED, "the alerts"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_mistake_is_found(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    mutant: Callable[..., object],
    protection: Protection,
    promise: str,
) -> None:
    monkeypatch.setattr(owner, name, mutant)
    with pytest.raises(AssertionError, match=promise):
        run_state_machine_as_test(machine(protection), settings=UNTIL_FOUND)
