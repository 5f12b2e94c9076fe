"""Serves the metrics over HTTP, from a process of its own.

Never serve them from a worker: its work-horses inherit the listening socket, and the port of a
dead worker then hangs instead of refusing.
"""

import gzip
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

from tallystick.metrics.collector import Collector

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PORT = 9464

_PLAIN = "text/plain; charset=utf-8"
_PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Server:
    """A started exporter; use it in `with`, or call `close`."""

    def __init__(self, http: exposition.ThreadingWSGIServer) -> None:
        self._http = http
        self._thread = threading.Thread(
            target=http.serve_forever, args=(0.05,), name="tallystick-exporter", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on, also if any free one (0) was asked for."""
        return int(self._http.server_port)

    def wait(self) -> None:
        """Block until somebody calls `close`, or interrupts."""
        self._thread.join()

    def close(self) -> None:
        """Stop listening; harmless when repeated."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def serve(collector: Collector, host: str = HOST, port: int = PORT) -> Server:
    """Start to serve `app(collector)`; raises OSError if the address is taken or not ours."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]

    class Listener(_Listener):
        address_family = family

    return Server(make_server(host, port, app(collector), Listener, _QuietHandler))


def app(collector: Collector) -> "WSGIApplication":
    """The exporter as a WSGI application, for a server of your own."""
    registry = CollectorRegistry()
    registry.register(collector)

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        try:
            status, headers, body = _route(registry, environ)
        except Exception:
            log.exception("exporter: a request failed")
            status, headers = "500 Internal Server Error", {"Content-Type": _PLAIN}
            body = b"The exporter failed; its log says why.\n"
        start_response(status, [*headers.items(), ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return answer


def _route(
    registry: CollectorRegistry, environ: "WSGIEnvironment"
) -> tuple[str, dict[str, str], bytes]:
    headers = {"Content-Type": _PLAIN}
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        headers["Allow"] = "GET, HEAD"
        return "405 Method Not Allowed", headers, b"Use GET or HEAD.\n"
    match environ["PATH_INFO"]:
        case "/healthz":
            return "200 OK", headers, b"ok\n"
        case "/metrics":
            encode, headers["Content-Type"] = _format(environ.get("HTTP_ACCEPT", ""))
            body = encode(registry)
            if exposition.gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
                headers["Content-Encoding"] = "gzip"
                body = gzip.compress(body)
            return "200 OK", headers, body
        case _:
            return "404 Not Found", headers, b"There are /metrics and /healthz.\n"


def _format(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """The encoder and content type of the first format in `accept` that is spoken here.

    The order counts, as Prometheus lists formats by preference. The version is never echoed:
    the answer names what was sent.
    """
    for wanted in accept.lower().split(","):
        media, *parameters = (part.strip() for part in wanted.split(";"))
        versions = [part.removeprefix("version=") for part in parameters if "version=" in part]
        if media == "application/openmetrics-text" and versions in ([], ["1.0.0"]):
            return openmetrics.generate_latest, openmetrics.CONTENT_TYPE_LATEST
        if media == "text/plain":
            break
    return exposition.generate_latest, _PROMETHEUS_TEXT


class _Listener(exposition.ThreadingWSGIServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away or stayed silent is its own affair, no traceback for us."""
        log.debug("exporter: a connection failed: %s", sys.exc_info()[1])


class _QuietHandler(WSGIRequestHandler):
    # A client that opens a connection and says nothing would hold a thread for ever.
    timeout = 10

    def log_message(self, format: str, *args: object) -> None:
        """A scrape every few seconds is no news."""
