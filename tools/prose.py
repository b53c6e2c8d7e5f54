"""How many docstrings cannot be read alone: their first sentence has no subject of its own.

    python tools/prose.py [--show PATH] [--most NUMBER]

A docstring is one of a module, class or function, or the string below a field. It is a fragment if it begins with one
of BEGINNINGS ("Of the shell, in km.", "What a table shows.", "See Kind."): a noun or a verb belongs there, or nothing
at all. With --show the fragments under PATH are listed; with --most more of them than NUMBER are an error.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGINNINGS = re.compile(
    r"(Of|What|See|Whether|Which|Who|Whose|How|Where|When|By|Those|That|Nothing|Its|Their|Them|Yours|"
    r"In words|In order|In what|From what|As in|As it|All of|None of|The same)\b"
)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", None) or () if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            value = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value.strip()


def main() -> int:
    """Count, and list what is asked for."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--show", metavar="PATH")
    options.add_argument("--most", type=int)
    chosen = options.parse_args()
    fragments, number = 0, 0
    for file in sorted(ROOT.glob("packages/*/src/**/*.py")):
        for line, text in docstrings(ast.parse(file.read_text(encoding="utf-8"))):
            number += 1
            if BEGINNINGS.match(text):
                fragments += 1
                if chosen.show and file.is_relative_to((ROOT / chosen.show).resolve()):
                    print(f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}")
    print(f"{fragments} of {number} docstrings are fragments")
    return int(chosen.most is not None and fragments > chosen.most)


if __name__ == "__main__":
    sys.exit(main())
