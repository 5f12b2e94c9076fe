"""A resource is asked for at a real server: absence is an answer, silence is not."""

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tallystick.core.errors import InvalidInput
from tallystick.verifiers.http import HttpResource, ResourceUnreadable


class Service(ThreadingHTTPServer):
    """A service on a free port that notes what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, body: Any, *, status: int = 200, **headers: str) -> None:
        """What `/it` answers from now on; a body that is not bytes is sent as JSON."""
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers["/it"] = (status, {"content-type": kind} | named, raw)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Readers that hang up early are part of these tests."""


class Handler(BaseHTTPRequestHandler):
    """Answers `/it` as told, and misbehaves at the other paths as their names say."""

    protocol_version = "HTTP/1.1"
    server: Service  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.headers.append({name.lower(): text for name, text in self.headers.items()})
        match self.path:
            case "/silent":
                self.server.released.wait()
            case "/endless":
                self._send(200, {"content-length": str(10**9)}, b"")
                while not self.server.released.is_set():
                    self.wfile.write(b"x")
            case "/torn":
                self._send(200, {"content-length": "100"}, b"only this")
            case _:
                status, headers, body = self.server.answers.get(self.path, (404, {}, b"none"))
                self._send(status, {"content-length": str(len(body))} | headers, body)
        self.close_connection = True

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            service.released.set()
            service.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as started:
        yield started


@pytest.fixture
def it(service: Service) -> HttpResource:
    return HttpResource(service.url, "/it")


# --- what is read ----------------------------------------------------------------------------


def test_json_is_read_with_its_status_and_etag(service: Service, it: HttpResource) -> None:
    service.answer({"state": "paid", "lines": [1, None, True]}, etag='"v7"')
    assert it.read() == {
        "status": 200,
        "etag": '"v7"',
        "body": {"state": "paid", "lines": [1, None, True]},
    }


def test_a_resource_without_an_etag_shows_none(service: Service, it: HttpResource) -> None:
    service.answer({})
    assert it.read() == {"status": 200, "body": {}}


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/Problem+JSON", "text/json"]
)
def test_every_json_content_type_is_parsed(
    service: Service, it: HttpResource, content_type: str
) -> None:
    service.answer(b'{"a": 1}', content_type=content_type)
    assert it.read() == {"status": 200, "body": {"a": 1}}


def test_numbers_with_a_fraction_are_exact_decimals(service: Service, it: HttpResource) -> None:
    service.answer(
        b'{"total": 12.50, "share": 0.1000000000000000000001}', content_type="application/json"
    )
    assert it.read() == {
        "status": 200,
        "body": {"total": "12.5", "share": "0.1000000000000000000001"},
    }


def test_what_is_not_json_is_read_as_a_digest(service: Service, it: HttpResource) -> None:
    service.answer(b"%PDF-1.7 \x00\xff")
    assert it.read() == {
        "status": 200,
        "body": {"sha256": hashlib.sha256(b"%PDF-1.7 \x00\xff").hexdigest(), "size": 11},
    }


def test_a_body_without_a_content_type_is_read_as_a_digest(service: Service) -> None:
    service.answers["/it"] = (200, {}, b"{}")
    state = HttpResource(service.url, "/it").read()
    assert state == {
        "status": 200,
        "body": {"sha256": hashlib.sha256(b"{}").hexdigest(), "size": 2},
    }


@pytest.mark.parametrize("status", [404, 410])
def test_a_resource_that_is_not_there_is_an_answer(
    service: Service, it: HttpResource, status: int
) -> None:
    service.answer({"error": "gone"}, status=status)
    assert it.read() is None


def test_each_read_asks_again(service: Service, it: HttpResource) -> None:
    service.answer({"n": 1})
    first = it.read()
    service.answer({"n": 2})
    assert (first, it.read()) == (
        {"status": 200, "body": {"n": 1}},
        {"status": 200, "body": {"n": 2}},
    )


def test_the_service_is_asked_for_the_bytes_themselves(service: Service, it: HttpResource) -> None:
    service.answer({})
    it.read()
    assert service.headers[0]["accept-encoding"] == "identity"


# --- where it is read ------------------------------------------------------------------------


def test_values_fill_the_path_and_cannot_leave_their_place(service: Service) -> None:
    resource = HttpResource(service.url + "/api/", "/invoices/{number}?of={owner}")
    resource.read(number="../2031/7?x#y", owner="a&b=c é")
    resource.read(number=7, owner="%2e%2e")
    assert service.asked == [
        "/api/invoices/..%2F2031%2F7%3Fx%23y?of=a%26b%3Dc%20%C3%A9",
        "/api/invoices/7?of=%252e%252e",
    ]


def test_a_client_brings_its_own_headers_and_stays_open(service: Service) -> None:
    service.answer({})
    with httpx.Client(base_url=service.url, headers={"authorization": "Bearer t"}) as client:
        resource = HttpResource(client, "/it")
        assert resource.read() == resource.read()
        assert not client.is_closed
    assert [one["authorization"] for one in service.headers] == ["Bearer t", "Bearer t"]


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_value_that_would_change_the_path_is_refused(service: Service, value: str) -> None:
    with pytest.raises(InvalidInput, match=r"^id: .*would change the path"):
        HttpResource(service.url, "/things/{id}").read(id=value)
    assert service.asked == []


def test_a_value_that_no_url_can_hold_is_refused(service: Service) -> None:
    with pytest.raises(InvalidInput, match=r"^id: it holds a lone surrogate"):
        HttpResource(service.url, "/things/{id}").read(id="\ud800")


@pytest.mark.parametrize("values", [{}, {"id": "1", "more": "2"}, {"di": "1"}])
def test_values_must_be_those_of_the_path(service: Service, values: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match=r"^path: /things/\{id\} was given .*It needs: id"):
        HttpResource(service.url, "/things/{id}").read(**values)


@pytest.mark.parametrize(
    "path",
    [
        *("it", "", "//other.example/it", "https://other.example/it"),
        *("/{", "/}", "/{}", "/{0}", "/{a.b}", "/{a[0]}", "/{a!r}", "/{a:>9}"),
    ],
)
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match=r"^path: .* is not a path"):
        HttpResource("https://service.example", path)


@pytest.mark.parametrize(
    "base", ["", "service.example", "ftp://service.example", "http://", "http://h:sekret/", "/it"]
)
def test_a_base_that_names_no_http_host_is_refused(base: str) -> None:
    with pytest.raises(InvalidInput, match=r"^service: it has no base URL") as caught:
        HttpResource(base, "/it")
    assert "sekret" not in str(caught.value)


def test_a_client_without_a_base_url_is_refused() -> None:
    with httpx.Client() as client, pytest.raises(InvalidInput, match=r"^service: "):
        HttpResource(client, "/it")


# --- what proves nothing ---------------------------------------------------------------------


@pytest.mark.parametrize("status", [300, 304, 400, 401, 403, 408, 418, 429, 500, 502, 503, 504])
def test_any_other_status_proves_nothing(service: Service, it: HttpResource, status: int) -> None:
    service.answer({"state": "paid"}, status=status)
    with pytest.raises(ResourceUnreadable, match=rf"it answered {status} .*proves neither"):
        it.read()


def test_a_redirect_to_another_host_is_not_followed(service: Service, it: HttpResource) -> None:
    with serving() as other:
        other.answer({"state": "paid"})
        service.answer(b"", status=302, location=f"{other.url}/it")
        with pytest.raises(
            ResourceUnreadable, match=r"302 Found and points to http://127\.0\.0\.1"
        ):
            it.read()
        assert other.asked == []


def test_a_redirect_to_a_login_page_is_not_taken_for_the_resource(
    service: Service, it: HttpResource
) -> None:
    service.answers["/login"] = (200, {}, b"who are you?")
    service.answer(b"", status=303, location="/login")
    with pytest.raises(ResourceUnreadable, match=r"303 See Other and points to http:.*/login; it"):
        it.read()
    assert service.asked == ["/it"]


def test_a_client_that_follows_redirects_does_not_follow_them_here(service: Service) -> None:
    service.answer(b"", status=301, location="/elsewhere")
    with httpx.Client(base_url=service.url, follow_redirects=True) as client:
        resource = HttpResource(client, "/it")
        with pytest.raises(ResourceUnreadable, match="it was not followed"):
            resource.read()


def test_a_service_that_is_not_there_proves_nothing() -> None:
    with socket.socket() as bound:  # it holds the port and does not listen
        bound.bind(("127.0.0.1", 0))
        resource = HttpResource(f"http://127.0.0.1:{bound.getsockname()[1]}", "/it")
        with pytest.raises(ResourceUnreadable, match=r"ConnectError: .*refused"):
            resource.read()


def test_a_service_that_stays_silent_proves_nothing(service: Service) -> None:
    with pytest.raises(ResourceUnreadable, match="ReadTimeout"):
        HttpResource(service.url, "/silent", timeout=0.05).read()


def test_the_timeout_holds_although_the_client_has_none(service: Service) -> None:
    with httpx.Client(base_url=service.url, timeout=None) as client:
        resource = HttpResource(client, "/silent", timeout=0.05)
        with pytest.raises(ResourceUnreadable, match="ReadTimeout"):
            resource.read()


def test_a_body_that_trickles_on_is_given_up_at_the_timeout(service: Service) -> None:
    resource = HttpResource(service.url, "/endless", timeout=0.1, max_bytes=10**9)
    with pytest.raises(ResourceUnreadable, match=r"its body took longer than 0\.1 s"):
        resource.read()


def test_a_body_that_is_too_large_is_not_read_to_its_end(service: Service) -> None:
    resource = HttpResource(service.url, "/endless", max_bytes=1000)
    with pytest.raises(ResourceUnreadable, match="its body is larger than 1000 bytes"):
        resource.read()


def test_a_body_of_just_the_largest_size_is_read(service: Service) -> None:
    service.answer(b"x" * 1000)
    state = HttpResource(service.url, "/it", max_bytes=1000).read()
    assert state is not None
    assert state["body"] == {"sha256": hashlib.sha256(b"x" * 1000).hexdigest(), "size": 1000}


def test_a_body_that_is_cut_off_proves_nothing(service: Service) -> None:
    with pytest.raises(ResourceUnreadable, match="RemoteProtocolError"):
        HttpResource(service.url, "/torn").read()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"a": ', "body cannot be used: not valid JSON"),
        (b"", "body cannot be used: not valid JSON"),
        (b'{"a": 1, "a": 2}', r"body\.a cannot be used: the key stands twice"),
        (b'{"a": NaN}', "body cannot be used: NaN is not JSON"),
        (b'{"id": 9007199254740993}', r"body\.id cannot be used: the integer is beyond"),
        (b'"\\u0000"', "body cannot be used: it holds the control character"),
        (b"\xff", "body cannot be used: not valid JSON"),
        (b"[" * 40 + b"]" * 40, "nested deeper than 32 levels"),
    ],
)
def test_json_that_cannot_be_taken_exactly_proves_nothing(
    service: Service, it: HttpResource, body: bytes, problem: str
) -> None:
    service.answer(body, content_type="application/json")
    with pytest.raises(ResourceUnreadable, match=problem):
        it.read()


def test_an_error_names_the_resource_but_no_credentials(service: Service) -> None:
    service.answers["/it?key=t0ken"] = (503, {}, b"")
    base = service.url.replace("//", "//reader:sekret@")
    with pytest.raises(ResourceUnreadable) as caught:
        HttpResource(base, "/it?key={key}").read(key="t0ken")
    assert f"The resource {service.url}/it could not be read" in str(caught.value)
    for secret in ("reader", "sekret", "t0ken"):
        assert secret not in str(caught.value)


def test_a_client_that_raises_for_status_leaks_no_credentials_either(service: Service) -> None:
    def refuse(response: httpx.Response) -> None:
        response.raise_for_status()

    service.answer({}, status=500)
    base = service.url.replace("//", "//reader:sekret@")
    with httpx.Client(base_url=base, event_hooks={"response": [refuse]}) as client:
        resource = HttpResource(client, "/it")
        with pytest.raises(ResourceUnreadable, match=r"\(it answered 500") as caught:
            resource.read()
    assert "sekret" not in str(caught.value)
