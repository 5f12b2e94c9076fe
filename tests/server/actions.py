"""Action types over one SQLite file, for tests that kill real processes.

The file keeps one row per item and an append-only ledger of effects, written in one transaction.
An *arm* is a file that makes the next run do something drastic at a point, once:
`kill-horse-P`, `kill-all-P` or `hang-P`, where P is one of before, after, verify, undo; or
`kill-server-P`, which holds the pid of a server. `wait-P` holds a run there for as long as it is
armed.
"""

import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from tallystick import Action, Context, InBand, NotApplied, StaleFence, Verdict


def folder() -> Path:
    """Where the target lives; from the environment, since workers are other processes."""
    return Path(os.environ["TARGET_DIR"])


@contextlib.contextmanager
def target() -> Iterator[sqlite3.Connection]:
    """One transaction on the target."""
    connection = sqlite3.connect(folder() / "target.db", isolation_level=None, timeout=10)
    try:
        connection.executescript(
            "CREATE TABLE IF NOT EXISTS item (name TEXT PRIMARY KEY, value TEXT, version INTEGER,"
            " fence INTEGER NOT NULL DEFAULT 0);"
            "CREATE TABLE IF NOT EXISTS effect (item TEXT, key TEXT, what TEXT, pid INTEGER);"
        )
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    finally:
        connection.close()


def effects(name: str, what: str = "set") -> int:
    """How often the target carried this out, by its own ledger."""
    with target() as db:
        found = db.execute("SELECT count(*) FROM effect WHERE item=? AND what=?", (name, what))
        return int(found.fetchone()[0])


def arm(point: str) -> None:
    """Make the next run do this, once."""
    (folder() / point).touch()


def at(point: str) -> None:
    """The point is passed: if it is armed, do it."""
    for victim in ("horse", "all"):
        with contextlib.suppress(FileNotFoundError):
            (folder() / f"kill-{victim}-{point}").unlink()
            if victim == "all":
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        armed = folder() / f"kill-server-{point}"
        pid = int(armed.read_text())
        armed.unlink()
        os.kill(pid, signal.SIGKILL)
    while (folder() / f"wait-{point}").exists():
        time.sleep(0.01)
    with contextlib.suppress(FileNotFoundError):
        (folder() / f"hang-{point}").unlink()
        time.sleep(600)


class SetItem(Action):
    """Set an item to a value; the plain, readable form."""

    name = "item.readable"
    verify_deadline = 0

    class Params(BaseModel):
        """The item and its new value."""

        item: str
        value: str

    def observe(self, params: Any) -> Any:
        with target() as db:
            found = db.execute("SELECT value, version FROM item WHERE name=?", (params.item,))
            row = found.fetchone()
        return {"value": row[0], "version": row[1]} if row else None

    def execute(self, params: Any, context: Context) -> Any:
        at("before")
        with target() as db:
            self.guard(db, params, context)
            self.change(db, params.item, params.value, context, "set")
        at("after")
        return {"set": params.value}

    def guard(self, db: sqlite3.Connection, params: Any, context: Context) -> None:
        """What this target refuses; nothing, for a plain one."""

    def change(
        self, db: sqlite3.Connection, item: str, value: str | None, context: Context, what: str
    ) -> None:
        """The effect and its line in the ledger."""
        db.execute(
            "INSERT INTO item (name, value, version) VALUES (?, ?, 1)"
            " ON CONFLICT (name) DO UPDATE SET value=excluded.value, version=version+1",
            (item, value),
        )
        row = (item, context.idempotency_key, what, os.getpid())
        db.execute("INSERT INTO effect VALUES (?, ?, ?, ?)", row)

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        at("verify")
        return Verdict.equal(expected=params.value, observed=now["value"] if now else None)

    def restored(self, params: Any, before: Any, now: Any) -> Verdict:
        was, is_now = (state["value"] if state else None for state in (before, now))
        return Verdict.equal(expected=was, observed=is_now)

    def undo(self, params: Any, before: Any, result: Any, context: Context) -> None:
        at("undo")
        with target() as db:
            old = before["value"] if before else None
            self.change(db, params.item, old, context, "undo")

    rollback = InBand("undo")


class SetKeyed(SetItem):
    """The same at a target that de-duplicates on the idempotency key."""

    name = "item.keyed"
    protection = "keyed"

    def change(
        self, db: sqlite3.Connection, item: str, value: str | None, context: Context, what: str
    ) -> None:
        seen = db.execute("SELECT 1 FROM effect WHERE key=?", (context.idempotency_key,))
        if seen.fetchone() is None:
            super().change(db, item, value, context, what)


class SetVersioned(SetItem):
    """The same at a target that compares-and-sets on the version."""

    name = "item.versioned"
    protection = "versioned"

    def guard(self, db: sqlite3.Connection, params: Any, context: Context) -> None:
        row = db.execute("SELECT version FROM item WHERE name=?", (params.item,)).fetchone()
        if (row[0] if row else None) != context.expected_version:
            raise NotApplied("the version has moved on")


class SetFenced(SetItem):
    """The same at a target that refuses old fencing tokens."""

    name = "item.fenced"
    protection = "fenced"

    def raise_fence(self, params: Any, token: int) -> None:
        with target() as db:
            self._fence(db, params.item, token)

    def guard(self, db: sqlite3.Connection, params: Any, context: Context) -> None:
        self._fence(db, params.item, context.fencing_token)

    def _fence(self, db: sqlite3.Connection, item: str, token: int) -> None:
        db.execute("CREATE TABLE IF NOT EXISTS fence (name TEXT PRIMARY KEY, token INTEGER)")
        row = db.execute("SELECT token FROM fence WHERE name=?", (item,)).fetchone()
        if row and row[0] > token:
            raise StaleFence(token)
        db.execute("INSERT OR REPLACE INTO fence VALUES (?, ?)", (item, token))


class SetBlind(SetItem):
    """The same at a target that cannot be read; its reply is all there is."""

    name = "item.blind"
    protection = "blind"

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        if result == {"set": params.value}:
            return Verdict.holds(observed=result)
        return Verdict.inconclusive(reason="no reply, and no way to look")


class SetWrong(SetItem):
    """Lands another value than was approved, so that its verification fails."""

    name = "item.wrong"
    effect_deadline: ClassVar[float | None] = 1.5

    def execute(self, params: Any, context: Context) -> Any:
        with target() as db:
            self.change(db, params.item, params.value + "!", context, "set")
        at("after")
        return {"set": params.value}


class SetSlowly(SetItem):
    """Waits before its effect for as long as a file named `slow` is there."""

    name = "item.slow"

    def execute(self, params: Any, context: Context) -> Any:
        while (folder() / "slow").exists() and context.remaining() > 0:
            time.sleep(0.01)
        return super().execute(params, context)
