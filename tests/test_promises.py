"""What the documents on security promise is shown by tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["docs/threat-model.md", "docs/data-protection.md"]
NAME = re.compile(r"`(test_\w+)::(test_\w+)`")


@cache
def shown_in(stem):
    """The tests in the file of this name."""
    (path,) = [*(ROOT / "tests").rglob(f"{stem}.py"), *ROOT.glob(f"packages/*/tests/**/{stem}.py")]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES)
def test_every_named_test_exists(page):
    named = NAME.findall((ROOT / page).read_text(encoding="utf-8"))
    assert len(named) >= 20
    assert [f"{file}::{test}" for file, test in named if test not in shown_in(file)] == []


def test_every_defence_has_a_test():
    page = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| [^\n]* \| shown by \|\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", page, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) >= 35
    assert [row for row in rows if not NAME.search(row.rpartition(" | ")[2])] == []
