"""A reader who does what a tutorial says, block by block, in the folder where they are: `python reader.py tutorial.md`.

Blocks with a title are saved as files, Python blocks are typed into one session, and lines of bash are run. To be
quick, `fedpareto …` and `python FILE` run in this process; `fedpareto … &` is a process of its own, as in a shell.
Before a loop that waits for a round, the reader does so too. Nothing that was started outlives the reader.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path

from processes import FLOWER, Command, Commands, Nursery

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PATIENCE = float(os.environ.get("FEDPARETO_TEST_PATIENCE", "900"))
SITE = "installed-packages"
"""Where `pip install` puts things, so that a tutorial does not change the environment of the tests."""


class Reader:
    """What a reader has at hand: a Python session and the processes they started."""

    def __init__(self) -> None:
        self.session = types.ModuleType("typed_by_a_reader")
        sys.modules[self.session.__name__] = self.session
        sys.path[:0] = ["", str(Path(SITE).resolve())]
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        self.jobs: list[Command] = []

    def follow(self, text: str) -> None:
        """Everything, in order."""
        for language, title, body in BLOCK.findall(text):
            if title:
                Path(title).parent.mkdir(parents=True, exist_ok=True)
                Path(title).write_text(body, encoding="utf-8")
            elif language == "python":
                exec(compile(body, "a Python block", "exec", dont_inherit=True), self.session.__dict__)
            elif language == "bash":
                for line in body.replace("\\\n", " ").splitlines():
                    print("$", line, flush=True)
                    self.run(line)

    def run(self, line: str) -> None:
        """One line of bash."""
        words = shlex.split(line, comments=True)
        match words:
            case []:
                return
            case ["fedpareto", *arguments, "&"]:
                self.start(arguments)
            case ["until", "fedpareto", *arguments, "do", "sleep", _, "done"] if "|" in arguments:
                self.wait_for_rounds(2)  # Without a process for each look.
                subprocess.run(["bash", "-ec", line], check=True, timeout=PATIENCE)
            case ["until", "fedpareto", *arguments, "do", "sleep", pause, "done"]:
                while self.fedpareto([word.rstrip(";") for word in arguments]):
                    time.sleep(float(pause.rstrip(";")))
            case ["fedpareto", *arguments]:
                if code := self.fedpareto(arguments):
                    raise SystemExit(f"{line} ended with {code}")
            case ["python", file]:
                runpy.run_path(file, run_name="__main__")
            case ["pip", "install", *what]:
                self.install([word for word in what if word != "-e"])
            case ["kill", "-9", job]:
                self.jobs[int(job.removeprefix("%")) - 1].signal(signal.SIGKILL)
            case ["kill", "$!"]:
                self.jobs[-1].signal(signal.SIGTERM)
            case ["wait"]:
                for job in self.jobs:
                    job.wait()
            case _:
                subprocess.run(["bash", "-ec", line], check=True, timeout=PATIENCE)

    def fedpareto(self, arguments: list[str]) -> int:
        """A command; its exit code."""
        from fedpareto.cli import main

        sys.argv = ["fedpareto", *arguments]
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    def start(self, arguments: list[str]) -> None:
        """In the background; what it says goes to a file."""
        self.jobs.append(Commands(FLOWER).start(arguments, Path(f"job-{len(self.jobs) + 1}.log")))

    def install(self, what: list[str]) -> None:
        """Really built and installed, where only this process sees it."""
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--no-build-isolation", "--target", SITE, *what], check=True, timeout=PATIENCE)
        importlib.invalidate_caches()
        from fedpareto.contract import registry

        registry.refresh()

    def wait_for_rounds(self, rounds: int) -> None:
        """Until a run in a folder below says that so many rounds are safe."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            states = [json.loads(path.read_text(encoding="utf-8")) for path in Path().glob("*/run/status.json")]
            if any(state["round"] >= rounds for state in states):
                return
            time.sleep(0.1)
        raise SystemExit(f"round {rounds} was not finished")

    def leave(self) -> None:
        """Nothing goes on running."""
        for job in self.jobs:
            if job.poll() is None:
                job.signal(signal.SIGKILL)
                job.wait()


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    Nursery.open()
    reader = Reader()
    try:
        reader.follow(Path(sys.argv[1]).read_text(encoding="utf-8"))
    finally:
        reader.leave()
