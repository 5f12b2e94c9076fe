"""One row is read anew from a real database, with binds only, and its absence is an answer."""

import hashlib
import multiprocessing
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from decimal import Decimal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Never

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from tallystick.core.errors import InvalidInput
from tallystick.verifiers.sql import RowAmbiguous, RowUnreadable, SqlRow

ACCOUNT = "SELECT owner, balance FROM account WHERE owner = :owner"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    path = tmp_path / "bank.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE account (owner TEXT, balance INTEGER)")
        connection.executemany(
            "INSERT INTO account VALUES (?, ?)", [("alice", 70), ("bob", 30), ("bob", 31)]
        )
    return path


@pytest.fixture
def engine(bank: Path) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"sqlite:///{bank}")
    yield made
    made.dispose()


def run(bank: Path, statement: str) -> None:
    with closing(sqlite3.connect(bank)) as connection, connection:
        connection.execute(statement)


# --- what is read ----------------------------------------------------------------------------


def test_a_row_is_read_by_url_text_url_and_engine(bank: Path, engine: sa.Engine) -> None:
    url = f"sqlite:///{bank}"
    for database in (url, sa.make_url(url), engine):
        assert SqlRow(database, ACCOUNT).read(owner="alice") == {"owner": "alice", "balance": 70}


def test_a_row_that_is_not_there_is_an_answer(bank: Path) -> None:
    assert SqlRow(f"sqlite:///{bank}", ACCOUNT).read(owner="carol") is None


def test_each_read_sees_the_database_as_it_is_now(bank: Path, engine: sa.Engine) -> None:
    for row in (SqlRow(f"sqlite:///{bank}", ACCOUNT), SqlRow(engine, ACCOUNT)):
        run(bank, "UPDATE account SET balance = 70 WHERE owner = 'alice'")
        before = row.read(owner="alice")
        run(bank, "UPDATE account SET balance = 12 WHERE owner = 'alice'")
        assert (before, row.read(owner="alice")) == (
            {"owner": "alice", "balance": 70},
            {"owner": "alice", "balance": 12},
        )


def test_two_rows_are_an_error_and_not_the_first_of_them(bank: Path) -> None:
    with pytest.raises(RowAmbiguous, match=r"More than one row of sqlite:.*unique key"):
        SqlRow(f"sqlite:///{bank}", ACCOUNT).read(owner="bob")


def test_a_value_that_looks_like_sql_is_only_a_value(bank: Path) -> None:
    row = SqlRow(f"sqlite:///{bank}", ACCOUNT)
    assert row.read(owner="' OR '1'='1") is None
    assert row.read(owner="alice'; DROP TABLE account; --") is None
    assert row.read(owner="alice") is not None


def test_a_bind_may_have_any_name(bank: Path) -> None:
    row = SqlRow(f"sqlite:///{bank}", "SELECT balance FROM account WHERE owner = :self")
    assert row.read(self="alice") == {"balance": 70}


def test_a_statement_without_binds_is_read_without_binds(bank: Path) -> None:
    row = SqlRow(f"sqlite:///{bank}", "SELECT count(*) AS accounts FROM account")
    assert row.read() == {"accounts": 3}


def test_a_common_table_expression_may_begin_the_statement(bank: Path) -> None:
    statement = f"\n  with one as ({ACCOUNT}) select balance from one"
    assert SqlRow(f"sqlite:///{bank}", statement).read(owner="alice") == {"balance": 70}


def test_a_typed_select_brings_decimals_and_dates_as_text(bank: Path) -> None:
    run(bank, "CREATE TABLE invoice (number TEXT, due TEXT, total REAL)")
    run(bank, "INSERT INTO invoice VALUES ('A1', '2031-05-06', 1250)")
    invoice = sa.table(
        "invoice",
        sa.column("number", sa.String),
        sa.column("due", sa.Date),
        sa.column("total", sa.Numeric(10, 2)),
    )
    wanted = sa.select(invoice.c.due, invoice.c.total).where(
        invoice.c.number == sa.bindparam("number"), invoice.c.total > Decimal("0.50")
    )
    row = SqlRow(f"sqlite:///{bank}", wanted)
    with pytest.raises(InvalidInput, match=r"Its binds are: number\."):
        row.read()
    assert row.read(number="A1") == {"due": date(2031, 5, 6).isoformat(), "total": "1250"}


def test_text_columns_may_be_typed_too(bank: Path) -> None:
    wanted = sa.text(ACCOUNT).columns(sa.column("owner"), sa.column("balance", sa.Numeric(10, 2)))
    row = SqlRow(f"sqlite:///{bank}", wanted)
    assert row.read(owner="alice") == {"owner": "alice", "balance": "70"}


def test_a_binary_column_is_shown_as_its_digest(bank: Path) -> None:
    row = SqlRow(f"sqlite:///{bank}", "SELECT x'00ff' AS logo, NULL AS seal")
    assert row.read() == {
        "logo": {"sha256": hashlib.sha256(b"\x00\xff").hexdigest(), "size": 2},
        "seal": None,
    }


def test_a_value_without_an_exact_json_form_is_refused_by_its_column(bank: Path) -> None:
    row = SqlRow(f"sqlite:///{bank}", "SELECT 9007199254740993 AS id")
    with pytest.raises(InvalidInput, match=r"^row\.id: the integer is beyond .*a string"):
        row.read()


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM account", "UPDATE account SET balance = 0", "DROP TABLE account", "", "selected"],
)
def test_a_statement_that_does_not_read_is_refused(bank: Path, statement: str) -> None:
    with pytest.raises(InvalidInput, match=r"^statement: .*a verifier never writes"):
        SqlRow(f"sqlite:///{bank}", statement)


@pytest.mark.parametrize("construct", [sa.text(ACCOUNT), sa.delete(sa.table("account"))])
def test_a_construct_that_is_no_select_is_refused(bank: Path, construct: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^statement: "):
        SqlRow(f"sqlite:///{bank}", construct)


def test_two_columns_of_one_name_are_refused(bank: Path) -> None:
    with pytest.raises(InvalidInput, match=r"same name \(a, a\).*AS"):
        SqlRow(f"sqlite:///{bank}", "SELECT 1 AS a, 2 AS a").read()


def test_a_bind_that_was_not_given_is_named(bank: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^owner: the statement needs it.*binds are: owner"):
        SqlRow(f"sqlite:///{bank}", ACCOUNT).read()


def test_a_bind_that_the_statement_does_not_have_is_named(bank: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^ownr: the statement has no bind of this name"):
        SqlRow(f"sqlite:///{bank}", ACCOUNT).read(owner="alice", ownr="bob")


@pytest.mark.parametrize(
    "url", ["postgresql//u:sekret@h/db", "postgresql://h:sekret/db", "not a url sekret", ""]
)
def test_a_url_that_cannot_be_parsed_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^database: it is not a database URL") as caught:
        SqlRow(url, ACCOUNT)
    assert "sekret" not in str(caught.value)


# --- what cannot be read ---------------------------------------------------------------------


def test_a_missing_table_is_unreadable_and_not_absent(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    with pytest.raises(RowUnreadable, match=r"empty\.db \(no such table: account\).*neither"):
        SqlRow(f"sqlite:///{path}", ACCOUNT).read(owner="alice")


def test_a_database_that_cannot_be_opened_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(RowUnreadable, match="unable to open database file"):
        SqlRow(f"sqlite:///{tmp_path}/no/such.db", ACCOUNT).read(owner="alice")


def test_an_unknown_dialect_is_unreadable_at_the_first_read() -> None:
    row = SqlRow("nosuch://reader:sekret@db.example/bank", ACCOUNT)
    with pytest.raises(RowUnreadable, match=r"nosuch://db\.example/bank \(.*nosuch") as caught:
        row.read(owner="alice")
    assert "sekret" not in str(caught.value)
    assert "reader" not in str(caught.value)


def test_a_password_that_the_driver_repeats_is_hidden() -> None:
    def refuse() -> Never:
        raise sqlite3.OperationalError("sekret with token t0ken was refused\nmore")

    url = "postgresql+pg8000://reader:sekret@db.example:5432/bank?access_token=t0ken"
    row = SqlRow(sa.create_engine(url, module=sqlite3, creator=refuse), ACCOUNT)
    with pytest.raises(RowUnreadable, match=r"\(\*\*\* with token \*\*\* was refused\)") as caught:
        row.read(owner="alice")
    assert "postgresql+pg8000://db.example:5432/bank (" in str(caught.value)


def test_a_dialect_that_repeats_the_url_shows_no_secrets(bank: Path) -> None:
    row = SqlRow(f"sqlite://reader:sekret@host/{bank}?access_token=t0ken", ACCOUNT)
    with pytest.raises(RowUnreadable, match="Invalid SQLite URL") as caught:
        row.read(owner="alice")
    assert "sekret" not in str(caught.value)
    assert "t0ken" not in str(caught.value)


def test_a_driver_that_is_not_installed_is_unreadable() -> None:
    row = SqlRow("mysql+mysqlconnector://reader:sekret@db.example/bank", ACCOUNT)
    with pytest.raises(RowUnreadable, match=r"//db\.example/bank \(No module named 'mysql'"):
        row.read(owner="alice")


def test_a_stored_text_that_is_not_of_its_columns_type_is_unreadable(bank: Path) -> None:
    wanted = sa.text("SELECT 'soon' AS due").columns(sa.column("due", sa.Date))
    with pytest.raises(RowUnreadable, match="soon"):
        SqlRow(f"sqlite:///{bank}", wanted).read()


def test_a_locked_database_is_unreadable_and_readable_again_afterwards(bank: Path) -> None:
    row = SqlRow(f"sqlite:///{bank}?timeout=0", ACCOUNT)
    with closing(sqlite3.connect(bank)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RowUnreadable, match="database is locked"):
            row.read(owner="alice")
    assert row.read(owner="alice") == {"owner": "alice", "balance": 70}


# --- where it is read ------------------------------------------------------------------------


def in_a_forked_child(row: SqlRow) -> Any:
    """What the row reads as in a child that was forked from here."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    child = fork.Process(target=_read_and_send, args=(row, there))
    child.start()
    there.close()
    answer = here.recv()
    child.join()
    here.close()
    child.close()
    return answer


def _read_and_send(row: SqlRow, pipe: Connection) -> None:
    pipe.send((os.getpid(), row.read(owner="alice")))


def test_a_probe_that_was_used_before_a_fork_reads_in_the_child_too(bank: Path) -> None:
    row = SqlRow(f"sqlite:///{bank}", ACCOUNT)
    assert row.read(owner="alice") is not None
    pid, state = in_a_forked_child(row)
    assert pid != os.getpid()
    assert state == {"owner": "alice", "balance": 70}


def test_a_probe_that_was_built_from_a_url_keeps_no_connection(bank: Path) -> None:
    changes = []

    @contextmanager
    def noting(name: str) -> Iterator[None]:
        def note(*_: object) -> None:
            changes.append(name)

        event.listen(sa.Pool, name, note)
        yield
        event.remove(sa.Pool, name, note)

    row = SqlRow(f"sqlite:///{bank}", ACCOUNT)
    with noting("connect"), noting("close"):
        row.read(owner="alice")
        row.read(owner="alice")
    assert changes == ["connect", "close", "connect", "close"]


def test_a_forked_child_never_uses_a_pooled_connection_of_its_parent(
    bank: Path, engine: sa.Engine
) -> None:
    # Every connection notes which process opened it, in the database itself.
    run(bank, "CREATE TABLE opened (pid INTEGER)")

    @event.listens_for(engine, "connect")
    def _note(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("INSERT INTO opened VALUES (?)", (os.getpid(),))
        connection.commit()

    row = SqlRow(engine, ACCOUNT)
    row.read(owner="alice")
    child, state = in_a_forked_child(row)
    row.read(owner="alice")
    with closing(sqlite3.connect(bank)) as connection:
        opened = connection.execute("SELECT pid FROM opened").fetchall()
    assert state == {"owner": "alice", "balance": 70}
    assert opened == [(os.getpid(),), (child,)]


def test_nothing_that_a_statement_writes_is_kept(bank: Path, engine: sa.Engine) -> None:
    run(bank, "CREATE TABLE seen (n INTEGER)")

    @event.listens_for(engine, "begin")
    def _write(connection: sa.Connection) -> None:
        connection.exec_driver_sql("INSERT INTO seen VALUES (1)")

    row = SqlRow(engine, "SELECT count(*) AS n FROM seen")
    assert row.read() == {"n": 1}
    assert row.read() == {"n": 1}
