"""One trace from proposal to end, across processes and crashes; none where nobody wants one."""

import json
import subprocess
import sys

import pytest
from opentelemetry import trace

from tallystick.core import canonical
from tallystick.jobs.states import State
from tallystick.telemetry import traces
from tallystick.testing import Bench
from tests.telemetry.conftest import Spans
from tests.telemetry.scales import BREAKDOWN, SECRET, TYPES, World

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def bench() -> Bench:
    World.reset()
    return Bench(*TYPES)


# --- one trace -----------------------------------------------------------------------------------


def test_a_clean_run_is_one_trace_from_proposal_to_verification(bench: Bench, spans: Spans) -> None:
    bench.run(bench.approved("scale.put", {"to": 1}))
    assert spans.names == [
        "approve",
        "effect",
        "precondition",
        "propose",
        "run",
        "verification",
    ]
    assert len(spans.traces) == 1
    parents = {name: spans.parent_of(spans.named(name)) for name in spans.names}
    assert parents == {
        "propose": "",
        "approve": "propose",
        "run": "propose",
        "precondition": "run",
        "effect": "run",
        "verification": "run",
    }


def test_the_effect_of_an_action_runs_in_its_trace(bench: Bench, spans: Spans) -> None:
    bench.run(bench.approved("scale.put", {"to": 1}))
    assert World.seen_in == list(spans.traces)


def test_a_rollback_is_in_the_trace(bench: Bench, spans: Spans) -> None:
    World.slip = 1
    id = bench.approved("scale.put", {"to": 1})
    bench.run(id)
    assert bench.state(id) is State.ROLLED_BACK
    assert len(spans.traces) == 1
    assert spans.parent_of(spans.named("rollback")) == "run"
    assert spans.parent_of(spans.named("undo")) == "rollback"


def test_a_compensation_is_in_the_trace_of_what_it_undoes(bench: Bench, spans: Spans) -> None:
    World.slip = 1
    id = bench.approved("scale.put-back", {"to": 1})
    bench.run(id)
    assert bench.state(id) is State.ROLLED_BACK
    assert len(spans.traces) == 1
    child = bench.tally.get(id).rollback["compensation"]
    [run] = [
        span
        for span in spans.all
        if span.name == "tallystick.run"
        and span.attributes
        and span.attributes["tallystick.action_id"] == child
    ]
    assert spans.parent_of(run) == "rollback"


@pytest.mark.parametrize("point", ["after_claim", "after_intent", "after_effect", "after_verify"])
def test_the_worker_after_a_crash_goes_on_in_the_same_trace(
    bench: Bench, spans: Spans, point: str
) -> None:
    id = bench.approved("scale.put", {"to": 1})
    bench.crash(id, point)
    bench.run(id)
    runs = [span for span in spans.all if span.name == "tallystick.run"]
    assert {str((span.attributes or {})["tallystick.worker"]) for span in runs} >= {"bench-2"}
    assert len(spans.traces) == 1


def test_every_decision_is_in_the_trace(bench: Bench, spans: Spans) -> None:
    World.raises = BREAKDOWN
    id = bench.approved("scale.put", {"to": 1})
    bench.run(id)
    bench.tally.acknowledge(id, by="oncall")
    bench.tally.resolve(id, to="abandoned", by="oncall", evidence="looked")
    rejected, cancelled = (bench.propose("scale.put", {"to": n}).id for n in (2, 3))
    bench.tally.reject(rejected, by="approver", reason="no")
    bench.tally.cancel(cancelled, by="producer")
    assert {"acknowledge", "resolve", "reject", "cancel"} <= set(spans.names)
    assert len(spans.traces) == 3


def test_a_proposal_joins_the_trace_of_its_caller_and_a_decision_links_to_its_own(
    bench: Bench, spans: Spans
) -> None:
    tracer = trace.get_tracer("caller")
    with tracer.start_as_current_span("order") as order:
        id = bench.propose("scale.put", {"to": 1}).id
    with tracer.start_as_current_span("approval page") as page:
        bench.tally.approve(id, by="approver")
    propose, approve = spans.named("propose"), spans.named("approve")
    assert propose.parent == order.get_span_context()
    assert len(spans.traces) == 2
    assert spans.parent_of(approve) == "propose"
    assert [link.context for link in approve.links] == [page.get_span_context()]


def test_a_span_names_its_action_and_its_moves(bench: Bench, spans: Spans) -> None:
    id = bench.approved("scale.put", {"to": 1})
    bench.run(id)
    run = spans.named("run")
    assert dict(run.attributes or {}) == {
        "tallystick.action_id": id,
        "tallystick.action_type": "scale.put",
        "tallystick.fencing_token": 1,
        "tallystick.worker": "bench-1",
        "tallystick.state": "committed",
    }
    states = [(event.attributes or {})["tallystick.state"] for event in run.events]
    assert states == ["running", "verifying", "committed"]
    assert (spans.named("propose").attributes or {})["tallystick.action_id"] == id
    assert (spans.named("effect").attributes or {})["tallystick.reply"] == "ok"
    assert (spans.named("verification").attributes or {})["tallystick.answer"] == "holds"


def test_what_is_raised_is_told_by_its_kind_and_nothing_secret_is_sent(
    bench: Bench, spans: Spans
) -> None:
    World.raises = BREAKDOWN
    bench.run(bench.approved("scale.put", {"to": 1}))
    with pytest.raises(RuntimeError), traces.span("other"):
        raise BREAKDOWN
    other = spans.named("other")
    assert other.status.status_code is trace.StatusCode.ERROR
    assert (other.attributes or {})["error.type"] == "RuntimeError"
    assert SECRET not in spans.text()


# --- what is kept of it --------------------------------------------------------------------------


def test_the_trace_is_kept_beside_what_is_approved_and_not_in_it(
    bench: Bench, spans: Spans
) -> None:
    id = bench.propose("scale.put", {"to": 1}).id
    stored = bench.tally.store.read(id)
    [first] = bench.tally.history(id)
    assert traces.trace_id(str(first.evidence["trace"])) in spans.traces
    assert "trace" not in stored.fields["content"]
    assert stored.fields["digest"] == canonical.digest(stored.fields["content"].encode())


def test_without_a_trace_what_is_stored_is_as_it_was_before(bench: Bench) -> None:
    id = bench.propose("scale.put", {"to": 1}).id
    assert set(bench.tally.history(id)[0].evidence) == {"event", "digest"}


def test_a_worker_without_opentelemetry_hands_the_trace_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_api", lambda: None)
    World.slip = 1
    with traces.span("caller", parent=PARENT):
        id = bench.approved("scale.put-back", {"to": 1})
    bench.run(id)
    child = bench.tally.get(id).rollback["compensation"]
    kept = [bench.tally.store.load(one).trace for one in (id, child)]
    assert kept == [PARENT, PARENT]
    assert traces.traceparent() == ""


@pytest.mark.parametrize(
    "forged",
    [
        "x",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        PARENT + "\n",
        PARENT.upper(),
        "01" + PARENT[2:] + "-more",
        {"a": 1},
        7,
    ],
    ids=str,
)
def test_a_trace_that_is_none_is_left_aside(bench: Bench, spans: Spans, forged: object) -> None:
    assert traces.trace_id(str(forged)) == ""
    with traces.span("run", parent=str(forged)):
        pass
    assert spans.named("run").parent is None


def test_the_id_of_a_trace_is_found_in_its_traceparent() -> None:
    assert traces.trace_id(PARENT) == TRACE_ID


def test_lines_of_the_journal_without_a_trace_have_none(bench: Bench) -> None:
    id = bench.propose("scale.put", {"to": 1}).id
    assert bench.tally.store.load(id).trace == ""


# --- where nobody wants one ----------------------------------------------------------------------

WITHOUT = """
import sys
for name in ("opentelemetry", "opentelemetry.trace"): sys.modules[name] = None
import json
from tallystick import Action, OutOfBand, Verdict
from tallystick.testing import Bench
from pydantic import BaseModel
class Note(Action):
    name, rollback = "note", OutOfBand("x.md")
    class Params(BaseModel): text: str
    def observe(self, params): return len(done)
    def execute(self, params, context): done.append(params.text)
    def verify(self, params, before, now, result):
        return Verdict.equal(expected=before + 1, observed=now)
done = []
bench = Bench(Note)
id = bench.approved("note", {"text": "a"})
print(json.dumps([bench.run(id).state, sorted(bench.tally.history(id)[0].evidence)]))
"""


def test_everything_works_where_opentelemetry_is_not_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["committed", ["digest", "event"]]


def test_a_span_that_nobody_keeps_does_nothing(bench: Bench) -> None:
    with traces.span("run", action_id="a") as noted:
        noted.note(seen="ours")
        traces.happened("moved", state="running")
        assert traces.traceparent() == ""
