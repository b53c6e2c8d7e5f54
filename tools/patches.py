"""Patches of Python files, as `git diff` writes them: what files become, and which of their lines that concerns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


class DoesNotApply(Exception):
    """Why."""


@dataclass(frozen=True)
class Patched:
    """A file after a patch."""

    text: str
    lines: frozenset[int] | None
    """Those of the file before that the change concerns: of every statement that it touches; None: what runs on import,
    which is not traced."""
    first: int
    """The first of them in the file before."""


def patched(patch: str, root: Path) -> dict[Path, Patched]:
    """The files that a patch changes."""
    found = {}
    for name, hunks in _files(patch.splitlines()):
        path = (root / name).resolve()
        if (
            not path.is_relative_to(root)
            or "src" not in path.relative_to(root).parts
            or path.suffix != ".py"
            or not path.exists()
        ):
            raise DoesNotApply(f"{name} is no Python file under src")
        before = path.read_text(encoding="utf-8")
        lines, touched, moved = before.splitlines(), set[int](), 0
        for wanted, hunk in hunks:
            old = [line[1:] for line in hunk if line[0] in " -"]
            at = _place(lines, old, wanted - 1 + moved, name)
            touched |= {at + 1 - moved + place for place in _touched(hunk)}
            new = [line[1:] for line in hunk if line[0] in " +"]
            lines[at : at + len(old)] = new
            moved += len(new) - len(old)
        text = "\n".join(lines) + "\n"
        try:
            ast.parse(text)
        except SyntaxError as problem:
            raise DoesNotApply(f"{name} is no Python after it: {problem}") from None
        found[path] = Patched(text, _executed(before, touched), min(touched))
    if not found:
        raise DoesNotApply("it changes no file")
    return found


def _files(lines: Sequence[str]) -> Iterator[tuple[str, list[tuple[int, list[str]]]]]:
    """Of each file its name, and the hunks: the line at which one is said to begin, and its lines."""
    name, hunks = "", list[tuple[int, list[str]]]()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("+++ ") and before.startswith("--- "):
            if hunks:
                hunks[-1][1].pop()  # It was no line of the last hunk, but the beginning of this file.
                yield name, hunks
            name, hunks = line[4:].split("\t")[0].strip().removeprefix("b/"), []
        elif name and (begins := HUNK.match(line)):
            hunks.append((int(begins[1]), []))
        elif hunks and (not line or line[0] in " -+"):
            hunks[-1][1].append(line or " ")
        elif hunks and line.startswith("diff "):
            yield name, hunks
            name, hunks = "", []
    if hunks:
        yield name, hunks


def _place(lines: Sequence[str], old: Sequence[str], near: int, name: str) -> int:
    """Where these lines stand; the nearest place to where they are said to be."""
    while old and not old[-1] and len(old) > 1:  # An empty line after the last hunk belongs to nothing.
        old = old[:-1]
    places = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
    if not places:
        raise DoesNotApply(f"{name} has no such lines: {next(iter(old), '')}")
    return min(places, key=lambda at: abs(at - near))


def _touched(hunk: Sequence[str]) -> set[int]:
    """The lines before that go, and those on both sides of what comes; counted from the first of the hunk."""
    found, at = set(), 0
    for line in hunk:
        found |= {at} if line[0] == "-" else {max(at - 1, 0), at} if line[0] == "+" else set()
        at += line[0] != "+"
    gone = {place for place, line in enumerate(line for line in hunk if line[0] != "+") if line[0] == "-"}
    return gone or found


def _executed(source: str, touched: set[int]) -> frozenset[int] | None:
    """The lines of the innermost statements around these lines; of a compound one those of its head."""
    found: set[int] = set()
    for line in touched:
        around = [one for one in ast.walk(ast.parse(source)) if _has(one, line)]
        functions = [one for one in around if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        if not functions:
            return None
        inner = max((one for one in around if isinstance(one, ast.stmt)), key=lambda one: (one.lineno, -_end(one)))
        found |= set(range(inner.lineno, _end(inner) + 1))
    return frozenset(found)


def _has(node: ast.AST, line: int) -> bool:
    """Whether a line is of a statement; of a function its body only, as the rest runs on import."""
    if not isinstance(node, ast.stmt):
        return False
    first = node.body[0].lineno if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else node.lineno
    return first <= line <= (node.end_lineno or first)


def _end(node: ast.stmt) -> int:
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
