"""Real processes of a federation, as operators start them, and what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = float(os.environ.get("FEDPARETO_TEST_PATIENCE", "240"))
"""Seconds until something that should happen must have happened; a busy machine needs more."""


class Party:
    """One `fedpareto` process; its output goes to a file."""

    def __init__(self, folder: Path, name: str, *words: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.output = folder / f"{name}.out"
        with self.output.open("ab") as file:
            command = [sys.executable, "-m", "fedpareto.cli", *map(str, words)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, *texts: str) -> None:
        """Until all texts were said."""
        deadline = time.monotonic() + PATIENCE
        while missing := [text for text in texts if text not in self.said()]:
            assert self.process.poll() is None, f"ended without saying {missing}:\n{self.said()}"
            assert time.monotonic() < deadline, f"did not say {missing}:\n{self.said()}"
            time.sleep(0.1)

    def end(self) -> int:
        """Waits until it ends by itself; its exit code."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end:\n{self.said()}") from None

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM; whoever does not obey is killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


class Parties:
    """All processes of a test; none outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Party] = []

    def start(self, name: str, *words: object) -> Party:
        self.all.append(Party(self.folder, name, *words))
        return self.all[-1]

    def stop(self) -> None:
        for party in self.all:
            party.stop()

    def outputs(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.folder.glob("*.out"))
