"""Sources of a table's rows: a file, a folder of files, a database, or a frame that is in memory already."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedpareto.config.errors import UserError
from fedpareto.contract import consent
from fedpareto.problems.fairness import reading
from fedpareto.problems.fairness.columns import Reading
from fedpareto.problems.fairness.reading import Table

if TYPE_CHECKING:
    from pandas import DataFrame
    from sqlalchemy import URL, Engine


ENVIRONMENT = "env:"
"""Prefix of an environment variable that holds a database's URL."""
FRAME = "frame:"
"""Prefix of the fingerprint of a frame, in place of a file name."""
MOST_FRAMES = 8
"""Frames that are kept for runs; the oldest is dropped first."""

_frames: dict[str, DataFrame] = {}


@dataclass(frozen=True)
class Source:
    """One of three: a file or folder, a query to a database, or a frame by its fingerprint."""

    file: str = ""
    sql: str = ""
    query: str = ""

    def __post_init__(self) -> None:
        if self.file and self.sql:
            raise UserError("a table is a file or comes from a database, not both: leave out one of file and sql")
        if bool(self.sql) != bool(self.query):
            raise UserError(
                "a database needs both, its URL and a query, such as "
                "--sql sqlite:///people.db --query 'SELECT * FROM people'"
            )
        if holds_password(self.sql):
            raise UserError(
                "the database's URL holds a password, which would be written to the run folder; put the URL into an "
                "environment variable and name that: --sql env:DATABASE_URL"
            )

    def __bool__(self) -> bool:
        return bool(self.file or self.sql)

    @property
    def name(self) -> str:
        """Name in messages."""
        if self.sql:
            return "the query's table"
        return "the DataFrame" if self.file.startswith(FRAME) else Path(self.file).name

    @property
    def shown(self) -> str:
        """Name as the user gave it."""
        return self.file or self.name

    def resolved(self) -> Source:
        """The source by an absolute path, the same wherever the program is started."""
        return replace(self, file=str(Path(self.file).expanduser().resolve())) if self.file else self

    def read(self, how: Reading | None = None) -> Table:
        if self.sql:
            consent.need_sql(self.sql, self.query)
            return _from_database(self, how or Reading())
        if self.file.startswith(FRAME):
            return _from_frame(self.file, how or Reading())
        consent.need_file(self.file)
        return reading.read(Path(self.file).expanduser(), how)

    def of_party(self) -> DataFrame:
        """A party's own table; a column with numbers and texts keeps them as they are."""
        table = self.read()
        if table.mixed:
            table = self.read(Reading(categorical=tuple(table.mixed)))
        return table.frame


# -- databases -----------------------------------------------------------------------------------------------------


def holds_password(url: str) -> bool:
    """True if a URL holds a password: before the host, or among its parameters."""
    before_host = re.match(r"^[^/]+://[^/@]*:[^/]+@", url)
    return bool(before_host) or bool(re.search(r"[?&;](password|passwd|pwd|token|secret)=", url, re.IGNORECASE))


@lru_cache(maxsize=4)
def _from_database(source: Source, how: Reading) -> Table:
    """Kept for this process: a run sees the rows as they were when it began."""
    return reading.of_frames(rows(_url(source.sql), source.query), source.name, how)


def _url(given: str) -> str:
    if not given.startswith(ENVIRONMENT):
        return given
    name = given.removeprefix(ENVIRONMENT)
    if not os.environ.get(name):
        raise UserError(f"--sql {given}: the environment variable {name} is not set; it holds the database's URL")
    return os.environ[name]


# -- frames --------------------------------------------------------------------------------------------------------


def keep_frame(frame: Any) -> str:
    """Keeps a pandas or polars frame for the runs of this process; returns the name to find it by."""
    import pandas

    found = _as_pandas(frame)
    if not isinstance(found, pandas.DataFrame):
        raise UserError(f"a table is a pandas or polars DataFrame, not {type(frame).__name__}")
    if found.empty:
        raise UserError("the DataFrame is empty: it has no rows")
    name = FRAME + fingerprint(found)
    _frames.pop(name, None)
    _frames[name] = found
    for oldest in list(_frames)[:-MOST_FRAMES]:
        del _frames[oldest]
    return name


def fingerprint(frame: DataFrame) -> str:
    from pandas.util import hash_pandas_object

    digest = hashlib.sha256("\x00".join(map(str, frame.columns)).encode())
    try:
        digest.update(hash_pandas_object(frame, index=False).to_numpy().tobytes())
    except TypeError:
        raise UserError("a column of the DataFrame holds lists or other objects that are not values") from None
    return digest.hexdigest()[:16]


def _as_pandas(frame: Any) -> Any:
    if not type(frame).__module__.startswith("polars"):
        return frame
    import pandas

    # By plain values, so that pyarrow need not be there.
    return pandas.DataFrame(frame.to_dict(as_series=False))


def _from_frame(name: str, how: Reading) -> Table:
    if name not in _frames:
        raise UserError(
            f"the table of this run is a DataFrame that this process does not have (fingerprint "
            f"{name.removeprefix(FRAME)}); give it again: fedpareto.resume(folder, frame=df)"
        )
    return _settled_frame(name, how)


@lru_cache(maxsize=4)
def _settled_frame(name: str, how: Reading) -> Table:
    return reading.of_frame(_frames[name], "the DataFrame", how)


# -- what a query may do -------------------------------------------------------------------------------------------
# One SELECT or WITH, in a transaction that can write nothing. Whoever may name a query could otherwise write files by
# it: SQLite makes a file for a table, MySQL one for INTO OUTFILE.
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
    try:
        return float(str(url.query.get("timeout", "5")))
    except ValueError:
        wrong = url.query["timeout"]
        raise UserError(f"timeout is '{wrong}' in the database's URL; it is a number of seconds") from None
