"""Names that a user has given in this process: no file leads to a database, an import or a cluster without one.

A spec or a run folder may come from a stranger. The user names a text by typing it on the command line, or in Python by
giving it to `fedpareto.run`, `table`, `sweep` or `tune`; `--allow-sql`, `--allow-import`, `--allow-address` and
`fedpareto.allow` name what files hold. Whoever opens a database, imports a module, goes to a cluster or reads a file
that a run folder names asks here first. Processes that this one starts know the same, by a variable of the
environment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedpareto.config.errors import UserError

VARIABLE = "FEDPARETO_NAMED"
"""The environment variable of what was named, separated by spaces: digests of texts, and the words below."""
SQL, FILES, STRICT, BLIND = "any-sql", "any-file", "strict", "blind"
"""Words: every query may run; where the process is strict, every file may be read; the process is strict; it reads no
data at all.
"""
MOST = 1000
"""Texts that are kept; the environment of a process has no room for many more."""


def name(*texts: str) -> None:
    """The user has given these texts."""
    _keep(_digest(text) for text in texts if text.strip())


def name_all(value: Any) -> None:
    """The user has given everything in a nest of plain values."""
    name(*_texts(value))


def named_too(value: Any) -> dict[str, str]:
    """The environment of a process for which the user has given these values, and whatever was named here."""
    return os.environ | {VARIABLE: " ".join([*_kept(), *map(_digest, _texts(value))])}


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, Mapping):
        value = list(value.values())
    return [text for one in value for text in _texts(one)] if isinstance(value, list | tuple) else []


def name_words(words: Sequence[str]) -> None:
    """The user has typed this command: the values of its options, and what stands behind = in them."""
    for before, word in zip(["", *words], words, strict=False):
        option, _, value = word.partition("=")
        if option.startswith("-"):
            name(value)
        elif before.startswith("-"):
            name(word, value)


def allow(sql: bool = False, modules: Iterable[str] = (), addresses: Iterable[str] = ()) -> None:
    """Files may name any query, these modules to import and these clusters: for specs and run folders that you trust.

    fedpareto.allow(sql=True)
    fedpareto.resume("runs/people")
    """
    _keep([SQL] if sql else [])
    name(*modules, *addresses)


def allow_files() -> None:
    """Every file may be read that a run folder names."""
    _keep([FILES])


def strict(blind: bool = False) -> dict[str, str]:
    """The environment of a process that reads no file which only a run folder names, or, if `blind`, no data at all."""
    return os.environ | {VARIABLE: " ".join([STRICT, *[BLIND] * blind, *_kept()])}


def passed() -> str:
    return os.environ.get(VARIABLE, "")


def take(passed: str) -> None:
    """Take over what was named where this process was begun from."""
    _keep(passed.split())


def need_sql(url: str, query: str) -> None:
    """Raises UserError if the user has not named this database and this query."""
    need_data(url)
    if SQL not in _kept() and not (_named(url) and _named(query)):
        raise UserError(
            f"the query '{_short(query)}' to the database {_short(url)} comes from a file, and might be a stranger's; "
            "if you know it, add --allow-sql (in Python: fedpareto.allow(sql=True))"
        )


def need_module(module: str, whole: str) -> None:
    """Raises UserError if the user has not named this module, or the longer text that it is a part of."""
    if not (_named(module) or _named(whole)):
        raise UserError(
            f"{_short(whole)} imports the Python module {_short(module)}, which only a file names; if you know it, add "
            f"--allow-import {_short(module)} (in Python: fedpareto.allow(modules=['{_short(module)}']))"
        )


def need_data(what: str) -> None:
    """Raises UserError in a process that reads no data."""
    if BLIND in _kept():
        raise UserError(f"this depends on rows of {_short(what)}, and a page that only watches reads no data")


def need_address(address: str) -> None:
    """Raises UserError if the user has not named this cluster: whoever it belongs to runs code with us."""
    if not _named(address):
        raise UserError(
            f"the cluster {_short(address)} comes from a file, and might be a stranger's; if you know it, add "
            f"--allow-address {_short(address)} (in Python: fedpareto.allow(addresses=['{_short(address)}']))"
        )


def need_file(path: str) -> None:
    """Raises UserError in a strict process if the user has not named this file."""
    need_data(path)
    kept = _kept()
    if STRICT in kept and FILES not in kept and not _named(path):
        raise UserError(
            f"the table {_short(path)} is named by the run's folder only, and the page reads no such file; give it "
            "rows, by --rows FILE or in the page, or start it with --allow-files"
        )


def _named(text: str) -> bool:
    return _digest(text) in _kept()


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode("utf-8", "replace")).hexdigest()[:32]


def _kept() -> list[str]:
    return os.environ.get(VARIABLE, "").split()


def _keep(more: Iterable[str]) -> None:
    kept = dict.fromkeys([*_kept(), *more])
    os.environ[VARIABLE] = " ".join(list(kept)[:MOST])


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:80]}…"
