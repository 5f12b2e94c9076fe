"""Stands where your pager will be: takes Alertmanager's webhooks, and says each alert in its log.

POST anything Alertmanager sends; GET /pages shows what came, newest last, as JSON.
"""

import json
import sys
from collections import deque
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 8080
MOST_PAGES, MOST_BYTES = 1000, 1 << 20

pages: deque[dict[str, Any]] = deque(maxlen=MOST_PAGES)


def alerts(path: str, notification: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """What a person must know of each alert in a notification."""
    for alert in notification["alerts"]:
        yield {
            "to": notification["receiver"],
            "path": path,
            "status": alert["status"],
            "labels": alert["labels"],
            "annotations": alert["annotations"],
            "starts_at": alert["startsAt"],
        }


class Pager(BaseHTTPRequestHandler):
    """Answers one request, of Alertmanager or of somebody who looks."""

    timeout = 10

    def do_POST(self) -> None:
        try:
            size = int(self.headers.get("Content-Length", "0"))
            if not 0 < size <= MOST_BYTES:
                raise ValueError(f"{size} bytes")
            found = list(alerts(self.path, json.loads(self.rfile.read(size))))
        except (ValueError, KeyError, TypeError) as error:
            self.answer(400, {"error": f"not a notification of Alertmanager: {error!r}"})
            return
        for page in found:
            pages.append(page)
            labels, told = page["labels"], page["annotations"]
            print(
                f"{page['status'].upper()} {labels.get('severity', '-')} {labels['alertname']}"
                f" {labels.get('action_type', '')}: {told.get('summary', '')}"
                f" {told.get('description', '')} See {told.get('runbook_url', '-')}",
                flush=True,
            )
        self.answer(200, {"taken": len(found)})

    def do_GET(self) -> None:
        match self.path:
            case "/healthz":
                self.answer(200, {"ok": True})
            case "/pages":
                self.answer(200, list(pages))
            case _:
                self.answer(404, {"error": "there are /pages and /healthz"})

    def answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """The alerts are the log; who asked for them is not."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if sys.argv[1:] else PORT
    with ThreadingHTTPServer(("0.0.0.0", port), Pager) as server:
        print(f"the pager listens on port {server.server_port}", flush=True)
        server.serve_forever()
