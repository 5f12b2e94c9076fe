"""Looks at one row of a database through SQLAlchemy."""

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import (
    URL,
    BindParameter,
    ClauseElement,
    Engine,
    Executable,
    NullPool,
    SelectBase,
    create_engine,
    make_url,
    text,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.sql.visitors import iterate

from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.core.errors import InvalidInput, TallystickError

# What drivers and column types raise by themselves, past SQLAlchemy: a driver that is missing, a
# socket that broke, a stored text that is not the date or number that its column promises.
_RAW = (ImportError, OSError, TypeError, ValueError)
_READS = re.compile(r"\s*(select|with|values)\b", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"pass|pwd|secret|token", re.IGNORECASE)


class RowUnreadable(TallystickError):
    """The row could not be read from {target} ({problem}), which proves neither that the effect is
    there nor that it is not. Check the database and the statement, then look again."""


class RowAmbiguous(TallystickError):
    """More than one row of {target} answers the statement, so none of them is evidence. Narrow its
    WHERE clause to a unique key."""


class SqlRow:
    """One row, read anew at every call: `SqlRow(url, "SELECT … WHERE owner = :owner")`.

    `database` is a SQLAlchemy `Engine`, a `URL` or the text of one. From a URL, the engine is made
    at the first read and keeps no connection (`NullPool`), so the probe may be built before a
    worker forks; an engine's pool is left to the parent in a forked child. Give the engine or the
    URL a connect timeout, and point it at the primary: a replica that lags gives old evidence.

    `statement` is a SELECT, WITH or VALUES with `:name` binds, or a SQLAlchemy `select(…)`. Values
    reach it as binds only. It runs in a transaction of its own that is never committed.

    Raises `InvalidInput` for a URL that cannot be parsed (without repeating it) and for a
    statement that does not read.
    """

    def __init__(self, database: Engine | URL | str, statement: str | Executable) -> None:
        self._engine = database if isinstance(database, Engine) else None
        self._url = database.url if isinstance(database, Engine) else _parsed(database)
        self._statement = _reading(statement)
        self._process = os.getpid()
        parts = iterate(cast(ClauseElement, self._statement))
        binds = [part for part in parts if isinstance(part, BindParameter)]
        self._required = {bind.key for bind in binds if bind.required}
        # SQLAlchemy numbers the binds of literals by itself and calls them unique.
        self._known = {bind.key for bind in binds if not bind.unique}

    def read(self, /, **binds: Any) -> dict[str, Json] | None:
        """The row as `{column: value}`, or None if no row matches: absence is an answer.

        `binds` are the values of the statement's `:name` binds, all of them and no others. Decimals
        become strings with the scale that the database gives (`"70.00"`), dates ISO text, binary
        columns `{"sha256": hex, "size": bytes}`.

        Raises `RowUnreadable` if the database does not answer or refuses, `RowAmbiguous` for more
        than one row, `InvalidInput` for wrong binds or a value that has no exact JSON form.
        """
        self._check(binds)
        try:
            with self._ready_engine().connect() as connection:
                result = connection.execute(self._statement, binds)
                columns = list(result.keys())
                rows = result.fetchmany(2)
        except (SQLAlchemyError, *_RAW) as error:
            raise RowUnreadable(
                target=_shown(self._url), problem=_problem(error, self._url)
            ) from None
        if len(rows) > 1:
            raise RowAmbiguous(target=_shown(self._url))
        return _as_json(columns, rows[0]) if rows else None

    def _check(self, binds: Mapping[str, Any]) -> None:
        for names, problem in (
            (self._required - binds.keys(), "the statement needs it and it was not given"),
            (binds.keys() - self._known, "the statement has no bind of this name"),
        ):
            if names:
                raise InvalidInput(
                    field=min(names),
                    problem=problem,
                    remedy=f"Its binds are: {', '.join(sorted(self._known)) or 'none'}.",
                )

    def _ready_engine(self) -> Engine:
        if self._engine is None:
            self._engine = create_engine(self._url, poolclass=NullPool)
        elif self._process != os.getpid():
            # A connection shared with the parent would mix up both their conversations.
            self._engine.dispose(close=False)
        self._process = os.getpid()
        return self._engine


def _parsed(url: URL | str) -> URL:
    try:
        return make_url(url)
    except (SQLAlchemyError, ValueError):  # neither text is safe: each may quote the password
        raise InvalidInput(
            field="database",
            problem="it is not a database URL",
            remedy="Write dialect://user:password@host:port/name, special characters as %XX.",
        ) from None


def _reading(statement: str | Executable) -> Executable:
    if isinstance(statement, str):
        if _READS.match(statement):
            return text(statement)
    elif isinstance(statement, SelectBase):
        return statement
    raise InvalidInput(
        field="statement",
        problem="it does not begin with SELECT, WITH or VALUES",
        remedy="Pass the text of a query, or a SQLAlchemy select; a verifier never writes.",
    )


def _as_json(columns: list[str], row: Any) -> dict[str, Json]:
    if len(set(columns)) < len(columns):
        raise InvalidInput(
            field="statement",
            problem=f"two of its columns have the same name ({', '.join(columns)})",
            remedy="Tell them apart with AS.",
        )
    return {
        name: canonical.normalise(_summary(value), field=f"row.{name}")
        for name, value in zip(columns, row, strict=True)
    }


def _summary(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    return value


def _shown(url: URL) -> str:
    return str(URL.create(url.drivername, host=url.host, port=url.port, database=url.database))


def _problem(error: Exception, url: URL) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    problem = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    secrets = [str(value) for name, value in url.query.items() if _SECRET_OPTION.search(name)]
    for secret in filter(None, [url.password, *secrets]):
        problem = problem.replace(str(secret), "***")
    return problem
