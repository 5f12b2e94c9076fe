"""The demo's targets: a bank, a website and a mailbox; each writes down every effect it has had.

These ledgers are what the demo believes. It counts effects there, whatever Tallystick says.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from tallystick.demo import accidents
from tallystick.demo.service import Payments

_BUSY_SECONDS = 1.0


class Refused(Exception):
    """The target did not do it, for certain; the message says why."""


@dataclass(frozen=True, slots=True)
class Targets:
    """All targets of one demo, in one folder."""

    folder: Path

    @property
    def bank(self) -> "Bank":
        return Bank(self.folder / "bank.db")

    @property
    def site(self) -> "Site":
        return Site(self.folder / "site")

    @property
    def mailbox(self) -> "Mailbox":
        return Mailbox(self.folder / "mailbox.jsonl")

    @property
    def payments(self) -> Payments:
        """The books of the HTTP service, as its owner reads them."""
        return Payments(self.folder / "payments.db")

    @property
    def service_url(self) -> str:
        """Where the HTTP service listens."""
        return (self.folder / "service.url").read_text()

    def create(self) -> None:
        """Build them, empty."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.bank.create()
        self.site.folder.mkdir()

    def effects(self) -> Counter[str]:
        """Every effect that any target has ever had, by kind."""
        return Counter(
            [
                *self.bank.effects(),
                *self.site.effects(),
                *self.payments.effects(),
                *self.mailbox.effects(),
            ]
        )


def here() -> Targets:
    """The targets of the demo that this process belongs to."""
    return Targets(accidents.folder())


# --- the bank ------------------------------------------------------------------------------------

_BANK = """
PRAGMA journal_mode = WAL;
CREATE TABLE accounts (owner TEXT PRIMARY KEY, balance TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE bookings (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,             -- transfer, reversal, or counter: done by a clerk
    key TEXT NOT NULL,              -- on whose order
    source TEXT, target TEXT,
    debit TEXT, credit TEXT,        -- what left the source, what reached the target
    reverses INTEGER UNIQUE REFERENCES bookings
);
CREATE TRIGGER no_update BEFORE UPDATE ON bookings BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON bookings BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class Bank:
    """Accounts in a SQLite file. Each booking is a row that stays, written with the balances.

    An account's version grows with each booking. An order may name the versions that it was made
    for, and is refused if they have moved on.
    """

    path: Path

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"sqlite:///{self.path}"

    def create(self) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            db.executescript(_BANK)

    def open_account(self, owner: str, balance: str) -> None:
        """A clerk opens an account, or sets the balance of one that exists."""
        with self._transaction() as db:
            found = db.execute("SELECT version FROM accounts WHERE owner = ?", (owner,)).fetchone()
            self._set(db, owner, Decimal(balance), found[0] + 1 if found else 1)
            self._book(db, "counter", "clerk", target=owner, credit=balance)

    def transfer(
        self, source: str, target: str, amount: Decimal, *, order: str, version: str | None = None
    ) -> int:
        """Move money; the number of the booking. `version` is `<source's>.<target's>`.

        Raises `Refused` if the versions have moved on, or for lack of funds.
        """
        fee = Decimal(accidents.happens(accidents.FEE) or 0)
        with self._transaction() as db:
            (paid_from, one), (paid_to, other) = (
                self._account(db, source),
                self._account(db, target),
            )
            if version not in {None, f"{one}.{other}"}:
                raise Refused(f"the accounts are at version {one}.{other}, not {version}")
            if paid_from < amount:
                raise Refused(f"{source} has no more than {paid_from}")
            self._set(db, source, paid_from - amount, one + 1)
            self._set(db, target, paid_to + amount - fee, other + 1)
            return self._book(db, "transfer", order, source, str(amount), target, str(amount - fee))

    def reverse(self, booking: int, *, order: str) -> int:
        """Book a transfer back, to the cent that was moved; the number of the reversal.

        Repeated under the same order it is the same reversal; raises `Refused` under another.
        """
        with self._transaction() as db:
            done = db.execute(
                "SELECT number, key FROM bookings WHERE reverses = ?", (booking,)
            ).fetchone()
            if done and done[1] == order:
                return int(done[0])
            found = db.execute(
                "SELECT source, debit, target, credit FROM bookings"
                " WHERE number = ? AND kind = 'transfer'",
                (booking,),
            ).fetchone()
            if done or not found:
                raise Refused(f"booking {booking} is {'reversed already' if done else 'unknown'}")
            source, debit, target, credit = found
            for owner, change in ((source, Decimal(debit)), (target, -Decimal(credit))):
                balance, version = self._account(db, owner)
                self._set(db, owner, balance + change, version + 1)
            return self._book(
                db, "reversal", order, target, credit, source, debit, reverses=booking
            )

    def balances(self) -> dict[str, str]:
        """What each owner has."""
        with self._transaction() as db:
            return dict(db.execute("SELECT owner, balance FROM accounts ORDER BY owner"))

    def effects(self) -> list[str]:
        """The kind of each booking that was not made by a clerk."""
        with self._transaction() as db:
            rows = db.execute("SELECT kind FROM bookings WHERE kind <> 'counter'")
            return [kind for (kind,) in rows]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(
            sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        ) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    @staticmethod
    def _account(db: sqlite3.Connection, owner: str) -> tuple[Decimal, int]:
        row = db.execute("SELECT balance, version FROM accounts WHERE owner = ?", (owner,))
        found = row.fetchone()
        if not found:
            raise Refused(f"{owner} has no account")
        return Decimal(found[0]), int(found[1])

    @staticmethod
    def _set(db: sqlite3.Connection, owner: str, balance: Decimal, version: int) -> None:
        db.execute("REPLACE INTO accounts VALUES (?, ?, ?)", (owner, f"{balance:.2f}", version))

    @staticmethod
    def _book(
        db: sqlite3.Connection,
        kind: str,
        key: str,
        source: str | None = None,
        debit: str | None = None,
        target: str | None = None,
        credit: str | None = None,
        reverses: int | None = None,
    ) -> int:
        done = db.execute(
            "INSERT INTO bookings (kind, key, source, debit, target, credit, reverses)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (kind, key, source, debit, target, credit, reverses),
        )
        return int(done.lastrowid or 0)


# --- the website ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Site:
    """Published pages, and beside them each page as it was before, by its digest."""

    folder: Path

    def page(self, name: str) -> Path:
        """Where a page stands."""
        return self.folder / name

    def publish(self, name: str, text: str) -> None:
        """Put a page in place, whole or not at all, after keeping the one that it replaces."""
        page = self.page(name)
        if page.exists():
            shutil.copy2(page, self._kept(hashlib.sha256(page.read_bytes()).hexdigest()))
        if accidents.happens(accidents.TORN) is not None:
            text = text[: len(text) // 2]
        self._place(page, text.encode())
        self._note("publication", name)

    def restore(self, name: str, sha256: str | None) -> None:
        """Put the page with this digest back, or take the page away for None. May be repeated."""
        if accidents.happens(accidents.NO_WAY_BACK) is not None:
            raise OSError("the disk is full")
        if sha256 is None:
            self.page(name).unlink(missing_ok=True)
        else:
            self._place(self.page(name), self._kept(sha256).read_bytes())
        self._note("restoration", name)

    def effects(self) -> list[str]:
        """The kind of each change to a page."""
        log = self.folder / ".changes"
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []

    def _kept(self, sha256: str) -> Path:
        kept = self.folder / ".before"
        kept.mkdir(exist_ok=True)
        return kept / sha256

    def _place(self, page: Path, data: bytes) -> None:
        draft = page.with_name(f".{page.name}.draft")
        draft.write_bytes(data)
        os.replace(draft, page)

    def _note(self, kind: str, name: str) -> None:
        with (self.folder / ".changes").open("a") as log:
            log.write(f"{kind} {name}\n")


# --- the mailbox ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Mail that has been accepted. Who sends it cannot look into it; its owner can."""

    path: Path

    def deliver(self, to: str, subject: str, text: str) -> None:
        """Accept one mail."""
        with self.path.open("a") as box:
            box.write(json.dumps({"to": to, "subject": subject, "text": text}) + "\n")

    def mails(self) -> list[dict[str, str]]:
        """What lies in it, as its owner sees it."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def effects(self) -> list[str]:
        return ["mail"] * len(self.mails())
