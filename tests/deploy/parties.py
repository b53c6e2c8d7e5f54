"""Real processes of a federation, as operators start them, and what they say."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from waiting import PATIENCE, until


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

        def is_said():
            is_over = self.process.poll() is not None
            missing = [text for text in texts if text not in self.said()]
            assert not (missing and is_over), f"ended without saying {missing}:\n{self.said()}"
            return not missing

        until(is_said, self.said)

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
                self.process.wait(60)
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
