"""The files of all packages, for tests of what none of them may do."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ROOT.glob("packages/*/src") for path in folder.rglob("*.py"))
assert len(SOURCES) > 500, "the packages lie elsewhere"


def package(path: Path) -> str:
    """The name of the package that a file belongs to."""
    return path.relative_to(ROOT).parts[1]


def room(path: Path) -> str:
    """The first folder of a file in its package, or the file itself."""
    return path.relative_to(ROOT).parts[4]
