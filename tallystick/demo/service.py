"""A payment service over HTTP, which the demo runs as a process of its own.

`POST /payments` books once per Idempotency-Key header, whoever repeats it, and every time without
one; `GET /invoices/<number>` shows what is paid. With `--deaf` it ignores the header.
"""

import contextlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_BUSY_SECONDS = 1.0

_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE invoices (number TEXT PRIMARY KEY, due TEXT NOT NULL, paid TEXT NOT NULL);
CREATE TABLE payments (
    id INTEGER PRIMARY KEY, key TEXT UNIQUE, invoice TEXT NOT NULL, amount TEXT NOT NULL
);
CREATE TRIGGER no_update BEFORE UPDATE ON payments BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON payments BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class Payments:
    """The service's books: invoices and, append-only, the payments made on them."""

    path: Path

    def create(self) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            db.executescript(_SCHEMA)

    def open_invoice(self, number: str, due: str) -> None:
        """Somebody owes something."""
        with self._transaction() as db:
            db.execute("INSERT INTO invoices VALUES (?, ?, '0.00')", (number, due))

    def invoice(self, number: str) -> dict[str, str] | None:
        """One invoice: number, due, paid."""
        with self._transaction() as db:
            row = db.execute("SELECT * FROM invoices WHERE number = ?", (number,)).fetchone()
            return dict(zip(("number", "due", "paid"), row, strict=True)) if row else None

    def pay(self, number: str, amount: Decimal, *, key: str | None) -> tuple[int, dict[str, Any]]:
        """Book a payment, unless this key has done so before: status and reply."""
        asked = (number, f"{amount:.2f}")
        with self._transaction() as db:
            done = db.execute(
                "SELECT id, invoice, amount FROM payments WHERE key = ?", (key,)
            ).fetchone()
            if done and done[1:] != asked:
                return 422, {"error": "the key belongs to another payment"}
            if done:
                return 200, {"payment": done[0], "replayed": True}
            row = db.execute("SELECT paid FROM invoices WHERE number = ?", (number,)).fetchone()
            if not row:
                return 404, {"error": "no such invoice"}
            paid = f"{Decimal(row[0]) + amount:.2f}"
            db.execute("UPDATE invoices SET paid = ? WHERE number = ?", (paid, number))
            booked = db.execute(
                "INSERT INTO payments (key, invoice, amount) VALUES (?, ?, ?)", (key, *asked)
            )
            return 201, {"payment": booked.lastrowid, "replayed": False}

    def effects(self) -> list[str]:
        """One for each payment booked."""
        with self._transaction() as db:
            return ["payment"] * int(db.execute("SELECT count(*) FROM payments").fetchone()[0])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(
            sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        ) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")


class Server(ThreadingHTTPServer):
    """The service on a free loopback port."""

    def __init__(self, payments: Payments, *, deaf: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.payments = payments
        self.deaf = deaf

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    @property
    def _service(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:
        invoice = self._service.payments.invoice(self.path.removeprefix("/invoices/"))
        if invoice:
            self._answer(200, invoice)
        else:
            self._answer(404, {"error": "no such invoice"})

    def do_POST(self) -> None:
        try:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number, amount = str(asked["invoice"]), Decimal(asked["amount"])
        except (ValueError, KeyError, TypeError, InvalidOperation):
            self._answer(400, {"error": "send {invoice, amount}"})
            return
        key = None if self._service.deaf else self.headers["Idempotency-Key"]
        self._answer(*self._service.payments.pay(number, amount, key=key))

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main(folder: str, *options: str) -> None:
    """Serve until told to stop, with the books in `folder`; `service.url` there says where."""
    payments = Payments(Path(folder, "payments.db"))
    payments.create()
    server = Server(payments, deaf="--deaf" in options)
    draft = Path(folder, ".service.url")
    draft.write_text(server.url)
    draft.rename(Path(folder, "service.url"))
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
