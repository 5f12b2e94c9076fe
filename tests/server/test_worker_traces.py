"""Real processes send one trace to a real collector: proposal, approval, run, undo, recovery."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.server import actions
from tests.server.conftest import Site, eventually

pytestmark = pytest.mark.server


@dataclass
class Collector:
    """Takes spans over OTLP/HTTP on loopback, and keeps them with the service that sent them."""

    spans: list[tuple[str, Span]] = field(default_factory=list)
    port: int = 0

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(named["service.name"], span) for span in scope.spans]

    def of(self, id: str) -> list[Span]:
        """The spans of the traces in which this action is named."""
        traces = {
            span.trace_id for _, span in self.spans if attributes(span).get("action_id") == id
        }
        return [span for _, span in self.spans if span.trace_id in traces]

    def names(self, id: str) -> set[str]:
        return {span.name.removeprefix("tallystick.") for span in self.of(id)}


def attributes(span: Span) -> dict[str, str]:
    return {one.key.removeprefix("tallystick."): one.value.string_value for one in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def traced(site: Site, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose processes know the collector."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.port}")
    return site


def tallystick(site: Site, *words: str) -> Any:
    command = [sys.executable, "-m", "tallystick", *words, "--json"]
    done = subprocess.run(
        command, env=site.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def approved(site: Site, name: str, item: str) -> str:
    """Proposed in one process and approved in another."""
    params = json.dumps({"item": item, "value": "new"})
    words = ["--params", params, "--key", item, "--by", "producer"]
    id: str = tallystick(site, "propose", name, *words)["id"]
    tallystick(site, "approve", id, "--by", "approver")
    return id


def test_an_action_is_one_trace_through_all_processes(traced: Site, collector: Collector) -> None:
    worker = traced.worker()
    id = approved(traced, "item.readable", "one")
    assert traced.at_rest(id) == "committed"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert collector.names(id) == {
        "propose",
        "approve",
        "run",
        "precondition",
        "effect",
        "verification",
    }
    assert len({span.trace_id for span in collector.of(id)}) == 1
    services = {span.name: service for service, span in collector.spans}
    assert services["tallystick.propose"] == "tallystick"
    assert services["tallystick.run"] == "tallystick-worker"
    [kept] = {line.evidence["trace"] for line in traced.tally.history(id)[:1]}
    assert kept.split("-")[1] == collector.of(id)[0].trace_id.hex()


def test_a_work_horse_that_lives_for_one_action_sends_its_spans_before_it_ends(
    traced: Site, collector: Collector
) -> None:
    traced.worker("--isolation", "fork")
    id = approved(traced, "item.wrong", "undone")
    assert traced.at_rest(id) == "rolled_back"
    undone = {"propose", "approve", "run", "effect", "verification", "rollback", "undo"}
    eventually(lambda: undone <= collector.names(id), "all spans arrive")
    assert len({span.trace_id for span in collector.of(id)}) == 1


def test_who_goes_on_after_a_kill_goes_on_in_the_same_trace(
    traced: Site, collector: Collector
) -> None:
    actions.arm("kill-horse-after")
    traced.worker("--isolation", "fork")
    id = approved(traced, "item.readable", "killed")
    assert traced.at_rest(id) == "committed"
    eventually(lambda: "run" in collector.names(id), "the second run's span arrives")
    [run] = [span for span in collector.of(id) if span.name == "tallystick.run"]
    assert attributes(run)["worker"] == traced.tally.history(id)[-1].worker
    assert run.trace_id.hex() == traced.tally.history(id)[0].evidence["trace"].split("-")[1]


def test_log_lines_name_the_trace(traced: Site, collector: Collector) -> None:
    traced.worker()
    id = approved(traced, "item.readable", "logged")
    assert traced.at_rest(id) == "committed"
    lines = [json.loads(line) for line in traced.log().splitlines() if id in line]
    trace = traced.tally.history(id)[0].evidence["trace"].split("-")[1]
    assert {line["trace_id"] for line in lines if line["logger"] == "tallystick.moves"} == {trace}


def test_a_stock_worker_sends_its_spans_too(traced: Site, collector: Collector) -> None:
    id = approved(traced, "item.readable", "stock")
    command = [sys.executable, "-m", "rq.cli", "worker", "--burst", "--serializer", "json"]
    command += ["--url", traced.server.url, "tallystick"]
    done = subprocess.run(
        command, env=traced.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert traced.tally.get(id).state == "committed", done.stderr
    assert {"propose", "approve", "run", "effect"} <= collector.names(id)


def test_a_collector_that_is_away_delays_nothing_and_is_told_in_few_words(
    traced: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    worker = traced.worker()
    assert traced.at_rest(approved(traced, "item.readable", "first")) == "committed"
    ids = [traced.approved("item.readable", f"item-{number}") for number in range(5)]
    assert {traced.at_rest(id) for id in ids} == {"committed"}
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    lines = [json.loads(line) for line in traced.log().splitlines()]
    told = [line["event"] for line in lines if line["logger"].startswith("opentelemetry")]
    assert 1 <= len(told) <= 4


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_SDK_DISABLED", "true", ""),
        ("OTEL_TRACES_EXPORTER", "none", ""),
    ],
)
def test_what_the_standard_variables_forbid_is_not_sent(
    traced: Site,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv(name, value)
    worker = traced.worker()
    assert traced.at_rest(traced.approved("item.readable", "silent")) == "committed"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert collector.spans == []
    assert ("no spans are sent" in traced.log()) is bool(said)
    assert said in traced.log()
