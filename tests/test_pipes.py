"""Commands whose output or input is a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fedpareto.config.errors import UserError
from fedpareto.config.files import read_json
from fedpareto.spec.draft import Draft
from processes import run


@pytest.mark.parametrize("words", [["algorithms"], ["algorithms", "--json"]])
def test_a_reader_that_has_seen_enough_is_no_failure(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run([sys.executable, "-m", "fedpareto", *words], stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
@pytest.mark.parametrize("read", [Draft.read, read_json])
def test_a_pipe_is_refused_instead_of_waited_for(read, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "spec.yaml")
    with pytest.raises(UserError, match=r"spec\.yaml cannot be read: it is not an ordinary file"):
        read(tmp_path / "spec.yaml")
