"""Each move is told once, after it was stored, with what it takes to find it; nothing else is."""

import json
import logging
from typing import Any

import pytest

from tallystick.core.errors import Conflict, IllegalMove, StoreUnavailable
from tallystick.jobs.connection import LinkDown
from tallystick.jobs.recoverer import log_alert
from tallystick.jobs.states import State
from tallystick.telemetry import logs
from tallystick.testing import Bench
from tests.telemetry.scales import BREAKDOWN, REFUSAL, SECRET, TYPES, World


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    World.reset()
    caplog.set_level(logging.DEBUG)
    return Bench(*TYPES)


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines about moves, as a worker would write them."""
    form = logs.formatter(words=False)
    return [
        json.loads(form.format(record))
        for record in caplog.records
        if record.name == "tallystick.moves"
    ]


def moves(caplog: pytest.LogCaptureFixture) -> list[tuple[str | None, str]]:
    return [
        (line["from_state"], line["state"])
        for line in told(caplog)
        if line["from_state"] != line["state"]
    ]


def test_each_move_of_a_clean_run_is_told_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run(bench.approved("scale.put", {"to": 1}))
    assert moves(caplog) == [
        (None, "waiting_for_approval"),
        ("waiting_for_approval", "approved"),
        ("approved", "running"),
        ("running", "verifying"),
        ("verifying", "committed"),
    ]


def test_a_line_names_action_states_attempt_token_and_worker(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    id = bench.approved("scale.put", {"to": 1})
    bench.run(id)
    [line] = [line for line in told(caplog) if line["state"] == "running"]
    del line["timestamp"]
    assert line == {
        "level": "info",
        "logger": "tallystick.moves",
        "event": f"action {id}: approved -> running",
        "action_id": id,
        "action_type": "scale.put",
        "from_state": "approved",
        "state": "running",
        "journal_event": "intent",
        "seq": 4,
        "attempt": 1,
        "fencing_token": 1,
        "worker": "bench-1",
    }


def test_as_many_moves_are_told_as_the_journal_holds(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    World.slip = 1
    id = bench.approved("scale.put-back", {"to": 1})
    bench.crash(id, "after_rollback_intent")
    bench.run(id)
    assert bench.state(id) is State.ROLLED_BACK
    everything = [line for one in bench.tally.list() for line in bench.tally.history(one.id)]
    stored = sorted((line.seq, line.hash) for line in everything)
    assert len(stored) == len(told(caplog))
    changes = [line for line in everything if line.from_state != line.to_state]
    assert len(changes) == len(moves(caplog)) > 8


def test_a_note_is_told_for_debugging_only(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.run(bench.approved("scale.put", {"to": 1}))
    notes = [line for line in told(caplog) if line["from_state"] == line["state"]]
    assert {line["level"] for line in notes} == {"debug"}
    assert "claimed" in {line["journal_event"] for line in notes}


@pytest.mark.parametrize(
    ("slip", "raises", "state"),
    [
        (1, None, State.ROLLING_BACK),
        (0, REFUSAL, State.FAILED),
        (0, BREAKDOWN, State.UNKNOWN),
    ],
    ids=["lands-wrong", "refused", "breaks"],
)
def test_a_move_that_calls_a_person_is_a_warning_and_says_what_to_do(
    bench: Bench,
    caplog: pytest.LogCaptureFixture,
    slip: int,
    raises: Exception | None,
    state: State,
) -> None:
    World.slip, World.raises = slip, raises
    id = bench.approved("scale.put", {"to": 1})
    bench.run(id)
    [line] = [line for line in told(caplog) if line["level"] == "warning"]
    assert (line["state"], line["next"]) == (state, f"tallystick show {id}")


def test_a_refused_move_is_not_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    id = bench.propose("scale.put", {"to": 1}).id
    stale = bench.tally.store.load(id)
    bench.tally.approve(id, by="approver")
    before = len(told(caplog))
    with pytest.raises(Conflict):
        bench.tally.store.move(stale, State.CANCELLED, who="late", evidence={"event": "cancelled"})
    with pytest.raises(IllegalMove):
        bench.tally.store.move(stale, State.COMMITTED, who="rash", evidence={"event": "verified"})
    assert len(told(caplog)) == before


def test_a_key_that_is_proposed_again_is_not_told_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.propose("scale.put", {"to": 1}, key="k")
    bench.propose("scale.put", {"to": 1}, key="k")
    assert moves(caplog) == [(None, "waiting_for_approval")]


class LosesReplies:
    """Runs a script, and loses its reply so often."""

    def __init__(self, script: Any, times: int) -> None:
        self.script, self.times = script, times

    def __call__(self, **given: Any) -> Any:
        reply = self.script(**given)
        if self.times:
            self.times -= 1
            raise LinkDown[0]("the reply is lost")
        return reply


@pytest.mark.parametrize("script", ["propose", "move"])
def test_a_move_whose_reply_was_lost_is_told_once(
    bench: Bench, caplog: pytest.LogCaptureFixture, script: str
) -> None:
    scripts = bench.tally.store._scripts
    scripts[script] = LosesReplies(scripts[script], 2)  # type: ignore[assignment]
    id = bench.approved("scale.put", {"to": 1})
    assert scripts[script].times == 0  # type: ignore[attr-defined]
    assert bench.state(id) is State.APPROVED
    assert len(moves(caplog)) == 2


def test_what_was_not_confirmed_is_not_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    scripts = bench.tally.store._scripts
    scripts["propose"] = LosesReplies(scripts["propose"], 100)  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable):
        bench.propose("scale.put", {"to": 1})
    assert told(caplog) == []


def test_a_quarantine_and_its_resolution_are_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    id = bench.approved("scale.put", {"to": 1})
    bench.redis.hset(bench.tally.store.keys.action(id), "token", "9")
    bench.run(id)
    bench.tally.resolve(id, to="abandoned", by="oncall", evidence="looked")
    last = [(line["state"], line["action_type"], line["level"]) for line in told(caplog)][-2:]
    assert last == [("corrupt", "scale.put", "warning"), ("abandoned", "scale.put", "info")]


@pytest.mark.parametrize("raises", [None, REFUSAL, BREAKDOWN], ids=["lands", "refused", "breaks"])
def test_neither_parameters_nor_results_nor_words_of_a_target_are_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture, raises: Exception | None
) -> None:
    World.raises = raises
    id = bench.approved("scale.put", {"to": 1})
    bench.run(id)
    for alert in bench.alerts():
        log_alert(alert)
    form = logs.formatter(words=False)
    said = [form.format(record) for record in caplog.records]
    assert len(said) > 4
    assert [line for line in said if SECRET in line] == []
    if raises:
        assert SECRET in json.dumps([line.evidence for line in bench.tally.history(id)])


def test_neither_are_the_words_of_a_precondition_that_breaks_in_a_recovery(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    id = bench.approved("scale.put-once", {"to": 1})
    bench.crash(id, "after_reply")
    bench.run(id)
    assert bench.state(id) is State.CORRUPT
    form = logs.formatter(words=False)
    said = "\n".join(form.format(record) for record in caplog.records)
    assert "cannot be checked again (ValueError)" in said
    assert SECRET not in said


def test_an_alert_is_told_with_its_facts_and_the_next_step(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    World.raises = REFUSAL
    id = bench.approved("scale.put", {"to": 1})
    bench.run(id)
    [alert] = bench.alerts()
    log_alert(alert)
    line = json.loads(logs.formatter(words=False).format(caplog.records[-1]))
    assert line["event"] == f"ALERT not_applied: action {id} is failed. Next: tallystick show {id}"
    assert (line["level"], line["action_id"], line["reason"]) == ("error", id, "not_applied")
    assert (line["action_type"], line["state"], line["seq"]) == ("scale.put", "failed", 6)


@pytest.mark.parametrize("alert", ["", "{", "[]", "4", "null", '"x"', "{}", '{"id": {"a": 1}}'])
def test_an_alert_that_somebody_else_wrote_is_told_all_the_same(
    caplog: pytest.LogCaptureFixture, alert: str
) -> None:
    log_alert(alert)
    assert caplog.messages[-1].startswith("ALERT")
