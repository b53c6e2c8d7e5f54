"""Real processes of a federation, as operators start them, and what they say."""

from __future__ import annotations

import signal
from pathlib import Path

from processes import Commands
from waiting import until


class Party:
    """One `fedpareto` process; its output goes to a file."""

    def __init__(self, server: Commands, output: Path, *words: object, afresh: bool = False) -> None:
        self.output = output
        self.process = server.start([str(word) for word in words], output, afresh)

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
        return self.process.wait()

    def kill(self) -> None:
        """kill -9."""
        self.process.signal(signal.SIGKILL)
        self.process.wait()


class Parties:
    """All processes of a test; none outlives it."""

    def __init__(self, server: Commands, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.all: list[Party] = []

    def start(self, name: str, *words: object, afresh: bool = False) -> Party:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.all.append(Party(self.server, self.folder / f"{name}.out", *words, afresh=afresh))
        return self.all[-1]

    def stop(self) -> None:
        for party in self.all:
            if party.process.poll() is None:
                party.kill()

    def outputs(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.folder.glob("*.out"))
