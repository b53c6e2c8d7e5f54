"""Rows of a database, which is only read: one SELECT or WITH, in a transaction that can write nothing.

Whoever may name a query could otherwise write files by it: SQLite makes a file for a table, MySQL one for INTO OUTFILE.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedpareto.config.errors import UserError
from fedpareto.problems.fairness import reading

if TYPE_CHECKING:
    from pandas import DataFrame
    from sqlalchemy import URL, Engine

READ_ONLY = {
    "postgresql": "SET TRANSACTION READ ONLY",
    "cockroachdb": "SET TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}
"""First statement for databases that have read-only transactions; others are held to the words of the query alone."""
WRITES = re.compile(r"\b(into|insert|update|delete|merge|create|alter|drop|call|exec|execute)\b", re.IGNORECASE)
"""Words by which a SELECT or WITH writes in one database or another."""
UNCLEAR = re.compile(r"[\\#$\[`]|--|/\*")
"""Texts that some databases read as the begin or the end of a quotation or a comment, and others do not."""
QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
"""Actions that SQLite may take for a query."""


def must_read_only(query: str) -> None:
    """Raises UserError unless a query is one SELECT or WITH that writes nothing in any database.

    Databases differ in what they take for a quotation or a comment: where that could matter, what is quoted counts too.
    """
    bare = query.strip().removesuffix(";").strip()
    if UNCLEAR.search(bare) is None:
        bare = QUOTED.sub("''", bare)
    if re.match(r"\(*\s*(select|with)\b", bare, re.IGNORECASE) is None:
        raise UserError(
            f"a query is one SELECT or WITH, such as SELECT * FROM people; this one is: {' '.join(query.split())[:80]}"
        )
    if ";" in bare:
        raise UserError("a query is one statement, without a ; in it")
    found = WRITES.search(bare)
    if found is not None:
        raise UserError(
            f"a query only reads, and this one holds the word {found[0].upper()}; a column of that name is written in "
            'double quotes, and a query with comments is given without them: SELECT "update" FROM people'
        )


def rows(given: str, query: str) -> Iterator[DataFrame]:
    """A query's rows, piece by piece."""
    import pandas

    try:
        import sqlalchemy
    except ImportError:
        raise UserError("reading a database needs SQLAlchemy: pip install 'fedpareto[sql]'") from None
    must_read_only(query)
    try:
        url = sqlalchemy.make_url(given)
        engine = _engine(url)
        with engine.connect().execution_options(stream_results=True) as connection:
            if url.get_backend_name() in READ_ONLY:
                connection.execute(sqlalchemy.text(READ_ONLY[url.get_backend_name()]))
            yield from pandas.read_sql(sqlalchemy.text(query), connection, chunksize=reading.PIECE)
            connection.rollback()
        engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, pandas.errors.DatabaseError, ImportError) as problem:
        # The database's own message is at the bottom of the chain.
        cause = problem.__cause__ if isinstance(problem, pandas.errors.DatabaseError) else problem
        reason = " ".join(str(getattr(cause, "orig", None) or problem).split()).partition(" (Background")[0]
        for secret in re.findall(r"://[^/@]*:([^/]+)@", given):
            reason = reason.replace(secret, "***")
        raise UserError(f"the database cannot be read: {reason}") from None


def _engine(url: URL) -> Engine:
    import sqlalchemy

    if url.get_backend_name() != "sqlite":
        return sqlalchemy.create_engine(url)
    path = Path(url.database or "").expanduser()
    if url.get_driver_name() != "pysqlite" or str(path).startswith("file:") or not path.is_file():
        raise UserError(f"there is no file {path}; an SQLite database is named by its path: sqlite:///people.db")

    def opened() -> Any:
        connection = sqlite3.connect(
            f"file:{quote(str(path.resolve()))}?mode=ro", uri=True, check_same_thread=False, timeout=_seconds(url)
        )
        connection.set_authorizer(_permit)
        return connection

    return sqlalchemy.create_engine("sqlite://", creator=opened, poolclass=sqlalchemy.NullPool)


def _permit(action: int, what: str | None, *_: str | None) -> int:
    """SQLite's question whether a step of a statement may be done; SQLAlchemy itself asks for one setting."""
    own = action == sqlite3.SQLITE_TRANSACTION or (action == sqlite3.SQLITE_PRAGMA and what == "read_uncommitted")
    return sqlite3.SQLITE_OK if own or action in READS else sqlite3.SQLITE_DENY


def _seconds(url: URL) -> float:
    """Seconds to wait for a locked database."""
    try:
        return float(str(url.query.get("timeout", "5")))
    except ValueError:
        wrong = url.query["timeout"]
        raise UserError(f"timeout is '{wrong}' in the database's URL; it is a number of seconds") from None
