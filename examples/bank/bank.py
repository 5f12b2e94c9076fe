"""The system that exists already: a bank in a SQLite file, with a ledger that only grows.

Amounts are text in the file and `Decimal` in Python, never a float. An account's version grows
with each booking; whoever names the versions that an order was made for is refused if they have
moved on.
"""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

FEE = Decimal("0.00")
"""What the bank keeps of a transfer. Nobody approves one: see test_bank.py for what happens."""

_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS accounts (
    owner TEXT PRIMARY KEY, balance TEXT NOT NULL, version INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS bookings (
    number INTEGER PRIMARY KEY,
    reference TEXT NOT NULL,        -- on whose order
    source TEXT NOT NULL, target TEXT NOT NULL,
    debit TEXT NOT NULL, credit TEXT NOT NULL,
    reverses INTEGER UNIQUE REFERENCES bookings
);
CREATE TRIGGER IF NOT EXISTS keep BEFORE UPDATE ON bookings
    BEGIN SELECT RAISE(ABORT, 'bookings stay as they are'); END;
CREATE TRIGGER IF NOT EXISTS stay BEFORE DELETE ON bookings
    BEGIN SELECT RAISE(ABORT, 'bookings stay'); END;
"""


class Refused(Exception):
    """The bank did not do it, for certain; the message says why."""


def path() -> Path:
    """The file that BANK names; bank.db in this folder unless it is set."""
    return Path(os.environ.get("BANK", "bank.db")).absolute()


def open_account(owner: str, balance: str) -> None:
    """Open an account with this much in it."""
    with contextlib.closing(sqlite3.connect(path())) as db:
        db.executescript(_SCHEMA)
    with _transaction() as db:
        _set(db, owner, Decimal(balance), version=1)


def transfer(source: str, target: str, amount: Decimal, *, version: str, reference: str) -> int:
    """Move money; the number of the booking. `version` is `<source's>.<target's>`.

    Raises `Refused` if the versions have moved on, or for lack of funds.
    """
    with _transaction() as db:
        (has, one), (gets, other) = _account(db, source), _account(db, target)
        if version != f"{one}.{other}":
            raise Refused(f"the accounts are at version {one}.{other}, not {version}")
        if has < amount:
            raise Refused(f"{source} has no more than {has}")
        _set(db, source, has - amount, one + 1)
        _set(db, target, gets + amount - FEE, other + 1)
        return _book(db, reference, source, target, amount, amount - FEE)


def reverse(number: int, *, reference: str) -> int:
    """Book a transfer back, to the cent that was moved; the number of the reversal.

    With the same reference it is the same reversal, however often. Raises `Refused` for a booking
    that does not exist, or was reversed under another reference.
    """
    with _transaction() as db:
        done = db.execute("SELECT number, reference FROM bookings WHERE reverses = ?", (number,))
        if reversal := done.fetchone():
            if reversal[1] == reference:
                return int(reversal[0])
            raise Refused(f"booking {number} is reversed already")
        found = db.execute(
            "SELECT source, target, debit, credit FROM bookings WHERE number = ?", (number,)
        ).fetchone()
        if found is None:
            raise Refused(f"there is no booking {number}")
        source, target, debit, credit = found[0], found[1], Decimal(found[2]), Decimal(found[3])
        for owner, change in ((source, debit), (target, -credit)):
            balance, version = _account(db, owner)
            _set(db, owner, balance + change, version + 1)
        return _book(db, reference, target, source, credit, debit, reverses=number)


def balances() -> dict[str, str]:
    """What each owner has."""
    with _transaction() as db:
        return dict(db.execute("SELECT owner, balance FROM accounts ORDER BY owner"))


def bookings() -> list[tuple[str, str, str]]:
    """Source, target and amount received, of every booking that was ever made."""
    with _transaction() as db:
        return list(db.execute("SELECT source, target, credit FROM bookings ORDER BY number"))


@contextlib.contextmanager
def _transaction() -> Iterator[sqlite3.Connection]:
    # One second: far less than an effect may take, so a busy file is an error and not a kill.
    with contextlib.closing(sqlite3.connect(path(), timeout=1, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("COMMIT")


def _account(db: sqlite3.Connection, owner: str) -> tuple[Decimal, int]:
    row = db.execute("SELECT balance, version FROM accounts WHERE owner = ?", (owner,)).fetchone()
    if row is None:
        raise Refused(f"{owner} has no account")
    return Decimal(row[0]), int(row[1])


def _set(db: sqlite3.Connection, owner: str, balance: Decimal, version: int) -> None:
    db.execute("REPLACE INTO accounts VALUES (?, ?, ?)", (owner, f"{balance:.2f}", version))


def _book(
    db: sqlite3.Connection,
    reference: str,
    source: str,
    target: str,
    debit: Decimal,
    credit: Decimal,
    reverses: int | None = None,
) -> int:
    done = db.execute(
        "INSERT INTO bookings (reference, source, target, debit, credit, reverses)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (reference, source, target, f"{debit:.2f}", f"{credit:.2f}", reverses),
    )
    return int(done.lastrowid or 0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["open", owner, balance]:
            open_account(owner, balance)
        case ["show"]:
            for who, has in balances().items():
                print(f"{who:10} {has:>10}")
        case _:
            sys.exit("usage: bank.py open OWNER BALANCE | show")
