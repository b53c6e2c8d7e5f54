from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import main


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def fedpareto(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Answer]:
    """`fedpareto ARGUMENTS` in an empty folder, through the entry point of the installed command."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["fedpareto", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capfd.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else 0, printed.out, printed.err)

    return call
