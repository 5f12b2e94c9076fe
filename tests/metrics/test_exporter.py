"""The exporter over real HTTP, on a free port of the loopback."""

import gzip
import http.client
import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple
from wsgiref.util import setup_testing_defaults

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tallystick.metrics.collector import Collector
from tallystick.metrics.counters import Snapshot
from tallystick.metrics.exporter import Server, app, serve

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,"
    "application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def value(self, name: str) -> float:
        return next(
            sample.value
            for family in parse_text(self.body.decode())
            for sample in family.samples
            if sample.name == name
        )


def collector_of(read: Callable[[], Snapshot]) -> Collector:
    return Collector(read, ["bank.transfer"], ["running", "committed"], ["running"])


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=sent)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


def unreadable() -> Snapshot:
    raise ConnectionError("redis://:secret@10.0.0.7 refused")


class BrokenCollector(Collector):
    def _product(self, snapshot: Snapshot) -> None:  # type: ignore[override]
        raise RuntimeError("a bug with a secret in it")


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(collector_of(lambda: Snapshot(workers=3)), port=0) as started:
        yield started


def test_metrics_are_classic_text_for_whoever_does_not_choose(server: Server) -> None:
    answer = ask(server, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == TEXT
    assert answer.headers["Content-Length"] == str(len(answer.body))
    assert answer.value("tallystick_workers") == 3


@pytest.mark.parametrize("accept", [PROMETHEUS_2, PROMETHEUS_3, "application/openmetrics-text"])
def test_metrics_are_openmetrics_for_a_prometheus_that_prefers_it(
    server: Server, accept: str
) -> None:
    answer = ask(server, "/metrics", Accept=accept)
    parse = openmetrics_parser.text_string_to_metric_families
    parsed = parse(answer.body.decode())  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    assert answer.headers["Content-Type"] == OPENMETRICS
    assert families["tallystick_workers"].samples[0].value == 3
    assert answer.body.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.1",
        "application/openmetrics-text;version=9.0.0",
        "application/openmetrics-text;version=junk;escaping",
        ";;;,,,=",
    ],
)
def test_any_other_wish_gets_classic_text_and_no_version_is_echoed(
    server: Server, accept: str
) -> None:
    answer = ask(server, "/metrics", Accept=accept)
    assert (answer.status, answer.headers["Content-Type"]) == (200, TEXT)
    assert answer.value("tallystick_workers") == 3


def test_metrics_are_compressed_for_whoever_can_read_that(server: Server) -> None:
    answer = ask(server, "/metrics", Accept_Encoding="gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    plain = answer._replace(body=gzip.decompress(answer.body))
    assert plain.value("tallystick_workers") == 3


def test_store_that_cannot_be_read_is_an_answer_and_not_an_error() -> None:
    with serve(collector_of(unreadable), port=0) as server:
        answer = ask(server, "/metrics")
        alive = ask(server, "/healthz")
    assert answer.status == 200
    assert answer.value("tallystick_redis_up") == 0
    assert b"tallystick_workers" not in answer.body
    assert b"secret" not in answer.body
    assert (alive.status, alive.body) == (200, b"ok\n")


def test_bug_in_the_exporter_is_a_500_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = BrokenCollector(Snapshot, [], [], [])
    with serve(collector, port=0) as server:
        answer = ask(server, "/metrics")
        alive = ask(server, "/healthz")
    assert (answer.status, answer.body) == (500, b"The exporter failed; its log says why.\n")
    assert "a bug with a secret in it" in caplog.text
    assert alive.status == 200


def test_health_is_answered_while_a_scrape_hangs() -> None:
    reading, go_on = threading.Event(), threading.Event()

    def slow() -> Snapshot:
        reading.set()
        assert go_on.wait(10)
        return Snapshot(workers=1)

    with serve(collector_of(slow), port=0) as server:
        answers: list[Answer] = []
        scrape = threading.Thread(target=lambda: answers.append(ask(server, "/metrics")))
        scrape.start()
        assert reading.wait(10)
        alive = ask(server, "/healthz")
        go_on.set()
        scrape.join(10)
    assert alive.status == 200
    assert [answer.value("tallystick_workers") for answer in answers] == [1]


def test_client_that_says_nothing_keeps_nobody_else_waiting(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10):
        assert ask(server, "/metrics").status == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metrics/../healthz", "/favicon.ico"])
def test_other_paths_are_not_found(server: Server, path: str) -> None:
    answer = ask(server, path)
    assert (answer.status, answer.body) == (404, b"There are /metrics and /healthz.\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused(server: Server, method: str) -> None:
    answer = ask(server, "/metrics", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(("method", "has_body"), [("GET", True), ("HEAD", False)])
def test_head_answers_as_get_does_but_without_the_body(method: str, has_body: bool) -> None:
    answered: list[tuple[str, dict[str, str]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> None:
        answered.append((status, dict(headers)))

    environ: dict[str, object] = {"REQUEST_METHOD": method, "PATH_INFO": "/healthz"}
    setup_testing_defaults(environ)
    body = b"".join(app(collector_of(Snapshot))(environ, start_response))  # type: ignore[arg-type]
    assert answered == [
        ("200 OK", {"Content-Type": "text/plain; charset=utf-8", "Content-Length": "3"})
    ]
    assert body == (b"ok\n" if has_body else b"")


def test_address_of_ipv6_can_be_listened_on() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with serve(collector_of(Snapshot), "::1", 0) as server:
        connection = http.client.HTTPConnection("::1", server.port, timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"ok\n"
        connection.close()


def test_only_this_machine_can_reach_it_unless_told_otherwise() -> None:
    defaults = inspect.signature(serve).parameters
    assert (defaults["host"].default, defaults["port"].default) == ("127.0.0.1", 9464)


def test_closed_server_refuses_at_once_and_may_be_closed_again() -> None:
    server = serve(collector_of(Snapshot), port=0)
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "/healthz")


def test_wait_returns_when_the_server_is_closed(server: Server) -> None:
    waiting = threading.Thread(target=server.wait)
    waiting.start()
    assert ask(server, "/healthz").status == 200
    assert waiting.is_alive()
    server.close()
    waiting.join(10)
    assert not waiting.is_alive()


def test_port_that_is_taken_is_an_error_of_the_caller(server: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        serve(collector_of(Snapshot), port=server.port)
