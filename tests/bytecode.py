"""Bytecode of the package and of the tests, written once for all workers.

In a new checkout each worker would compile the package and rewrite the assertions of every test, all of them the same
files at the same time: a quarter of what it takes them to begin.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib.util
import multiprocessing
import sys
import types
import warnings
from importlib.abc import Loader
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_all() -> None:
    """Of all files, on all cores."""
    if sys.dont_write_bytecode or "fork" not in multiprocessing.get_all_start_methods():
        return
    files = [path for folder in ("packages", "tests") for path in (ROOT / folder).rglob("*.py")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Newer Pythons warn of threads.
        with multiprocessing.get_context("fork").Pool() as pool:
            pool.map(write, files, chunksize=16)


def write(path: Path) -> None:
    """Whoever imports the file from now on reads its bytecode, if it can be compiled at all."""
    if path.name.startswith("test_") or path.name == "conftest.py":
        rewrite(path)
    else:
        compileall.compile_file(path, quiet=2)


def rewrite(path: Path) -> None:
    """Pytest's own importer keeps what it makes of a file before it executes that; here nothing can be imported."""
    for importer in sys.meta_path:
        if isinstance(importer, Loader) and type(importer).__module__ == "_pytest.assertion.rewrite":
            module = types.ModuleType(path.stem)
            module.__spec__ = importlib.util.spec_from_file_location(path.stem, path, loader=importer)
            module.__dict__["__builtins__"] = {}
            with contextlib.suppress(ImportError, SyntaxError):
                importer.exec_module(module)
