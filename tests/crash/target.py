"""The target: items in one SQLite file, with a ledger that the target keeps for itself.

Each effect and its line in the ledger are one transaction. What a target of each protection
refuses is refused here, inside that transaction. `Target.at(point)` is told of every point that a
call passes (`before_`, `inside_` and `after_` each of `WHATS`), and is where crashes happen.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick import Context, NotApplied, Protection, StaleFence

SET, UNDO, RESTORE, FENCE = WHATS = ("set", "undo", "restore", "fence")
"""What a call wants: the effect, its undoing in-band or by a second action, a raised fence."""

BEFORE = "old"
"""The value of every item before anything happened to it."""

_TABLES = """
CREATE TABLE item (name TEXT PRIMARY KEY, value TEXT, version INTEGER, fence INTEGER);
CREATE TABLE ledger (
  n INTEGER PRIMARY KEY, at INTEGER, item TEXT, action TEXT, key TEXT, token INTEGER,
  what TEXT, value TEXT, version INTEGER, pid INTEGER);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger: something that happened. `at` is in milliseconds."""

    n: int
    at: int
    item: str
    action: str
    key: str
    token: int
    what: str
    value: str
    version: int
    pid: int


def passed(point: str) -> None:
    """The default of `Target.at`: nothing happens."""


@dataclass(frozen=True)
class Target:
    """The items and the ledger in this folder."""

    folder: Path
    at: Callable[[str], None] = passed

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(
            sqlite3.connect(self.folder / "target.db", isolation_level=None, timeout=20)
        ) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    def create(self) -> None:
        """Lay out an empty target."""
        with contextlib.closing(sqlite3.connect(self.folder / "target.db")) as db:
            db.executescript(_TABLES)

    def add(self, item: str) -> None:
        """An item as it is before anything happens to it."""
        with self._transaction() as db:
            db.execute("INSERT INTO item VALUES (?, ?, 1, 0)", (item, BEFORE))

    def read(self, item: str) -> tuple[str, int]:
        """An item's value and version."""
        with self._transaction() as db:
            row = db.execute("SELECT value, version FROM item WHERE name=?", (item,)).fetchone()
        return str(row[0]), int(row[1])

    def ledger(self, item: str) -> list[Entry]:
        """All that ever happened to an item, oldest first."""
        with self._transaction() as db:
            rows = db.execute("SELECT * FROM ledger WHERE item=? ORDER BY n", (item,)).fetchall()
        return [Entry(*row) for row in rows]

    def raise_fence(self, item: str, token: int) -> None:
        """Refuse older tokens from now on."""
        self.at("before_fence")
        with self._transaction() as db:
            _fence(db, item, token)
            self.at("inside_fence")
        self.at("after_fence")

    def call(
        self, protection: Protection, item: str, value: str, what: str, context: Context
    ) -> dict[str, Any]:
        """Set an item to a value, unless the protection refuses it."""
        self.at(f"before_{what}")
        with self._transaction() as db:
            answer = _apply(db, protection, item, value, what, context)
            self.at(f"inside_{what}")
        self.at(f"after_{what}")
        return answer


def _apply(
    db: sqlite3.Connection,
    protection: Protection,
    item: str,
    value: str,
    what: str,
    context: Context,
) -> dict[str, Any]:
    key, token = context.idempotency_key, context.fencing_token
    if protection is Protection.KEYED:
        known = "SELECT value, version FROM ledger WHERE key=?"
        if row := db.execute(known, (key,)).fetchone():
            return {"value": row[0], "version": row[1]}
    version = db.execute("SELECT version FROM item WHERE name=?", (item,)).fetchone()[0]
    if protection is Protection.VERSIONED and version != context.expected_version:
        raise NotApplied(f"it is version {version}, not {context.expected_version}")
    if protection is Protection.FENCED:
        _fence(db, item, token)
    db.execute("UPDATE item SET value=?, version=? WHERE name=?", (value, version + 1, item))
    at = time.time_ns() // 1_000_000
    line = (at, item, context.action_id, key, token, what, value, version + 1, os.getpid())
    db.execute("INSERT INTO ledger VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", line)
    return {"value": value, "version": version + 1}


def _fence(db: sqlite3.Connection, item: str, token: int) -> None:
    highest = db.execute("SELECT fence FROM item WHERE name=?", (item,)).fetchone()[0]
    if highest > token:
        raise StaleFence(token)
    db.execute("UPDATE item SET fence=? WHERE name=?", (token, item))
