"""A webhook receiver: what Alertmanager sends, to which receiver, and when."""

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Notice:
    """One alert in one notification."""

    at: float
    """Unix seconds at which it arrived."""
    receiver: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]

    @property
    def name(self) -> str:
        return self.labels["alertname"]


class Receiver:
    """Listens on a free port of the loopback; an address for each receiver."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer._take(self.path.strip("/"), body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def _take(self, receiver: str, body: dict[str, Any]) -> None:
        assert body["receiver"] == receiver
        now = time.time()
        self.notices += [
            Notice(now, receiver, alert["status"], alert["labels"], alert["annotations"])
            for alert in body["alerts"]
        ]

    def url(self, receiver: str) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/{receiver}"

    def find(self, name: str, status: str = "firing", *, after: float = 0, **labels: str) -> Any:
        """The first notice of this alert that came after this instant, if one did."""
        for notice in list(self.notices):
            fits = labels.items() <= notice.labels.items()
            if (notice.name, notice.status) == (name, status) and notice.at > after and fits:
                return notice
        return None

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
