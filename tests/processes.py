"""Real processes for tests of kills and signals, without the seconds that importing torch takes for each.

A server process imports everything once and then forks: every fork runs the command line's own `main` in a process of
its own, which can be killed, interrupted and waited for like any other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from waiting import PATIENCE, until

COMMON = ("sklearn.cluster", "moocore", "fedpareto.api", "fedpareto.experiments.progress", "fedpareto.cli")
"""What a fork had to import itself would take most of its time."""


class ForkServer:
    """The test's end of the server; these modules are imported by it besides."""

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, __file__, *COMMON, *modules]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, arguments: Sequence[str | Path], stderr: Path) -> Forked:
        """`fedpareto ARGUMENTS` in a new process; what it prints goes to the file."""
        stderr.write_text("")
        return Forked(self, self.ask({"start": [str(part) for part in arguments], "stderr": str(stderr)}), stderr)

    def run(self, arguments: Sequence[str | Path], stderr: Path) -> int:
        """The same to its end; gives back the exit code."""
        return self.start(arguments, stderr).wait()

    def ask(self, request: dict[str, Any]) -> Any:
        """One question, one answer."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def close(self) -> None:
        """Ends the server."""
        self._server.communicate(timeout=PATIENCE)


@dataclass
class Forked:
    """One `fedpareto …` process."""

    server: ForkServer
    pid: int
    stderr: Path

    def poll(self) -> int | None:
        """The exit code (minus the signal's number, if one ended it), None while it runs."""
        return self.server.ask({"poll": self.pid})

    def wait(self) -> int:
        """The exit code, once there is one."""
        until(lambda: self.poll() is not None, self.stderr.read_text)
        code = self.poll()
        assert code is not None
        return code

    def wait_for_text(self, text: str) -> bool:
        """Waits until the process has printed the text; False if it ended before."""

        def is_settled() -> bool:
            return text in self.stderr.read_text() or self.poll() is not None

        until(is_settled, self.stderr.read_text)
        return text in self.stderr.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)


def _serve(modules: Sequence[str]) -> None:
    for module in modules:
        import_module(module)
    codes: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer: int | None = os.fork()
            if answer == 0:
                _become(request["start"], request["stderr"])
        else:
            pid = request["poll"]
            if pid not in codes and (ended := os.waitpid(pid, os.WNOHANG))[0]:
                codes[pid] = os.waitstatus_to_exitcode(ended[1])
            answer = codes.get(pid)
        print(json.dumps(answer), flush=True)


def _become(arguments: list[str], stderr: str) -> None:
    """Turns this fork into `fedpareto ARGUMENTS`, in a process group of its own as in a terminal."""
    from fedpareto.cli import main

    os.setpgid(0, 0)

    file = os.open(stderr, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["fedpareto", *arguments]
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _serve(sys.argv[1:])
