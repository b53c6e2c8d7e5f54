"""Real processes for tests of kills and signals, without the seconds that importing torch and Flower takes for each.

A server process imports everything once and then forks: every fork runs the command line's own `main` in a process of
its own, which can be killed, interrupted and waited for like any other. What such a process starts itself (Flower's
programs and our workers) comes from a nursery in the same way: forks that are its own children.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

from waiting import PATIENCE, until

COMMON = ("sklearn.cluster", "moocore", "fedpareto.api", "fedpareto.experiments.progress", "fedpareto.cli")
"""What a fork had to import itself would take most of its time."""
FLOWER = (
    "flwr.superlink.cli",
    "flwr.supernode.cli",
    "flwr.cli.build",
    "fedpareto.engines.flower.launch",
    "fedpareto.engines.flower.screen",
    "fedpareto.experiments.flower",
)
"""The same for a federation, in which the forks' children are forks, too."""
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Flower reads this when it is imported."""
PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    """The test's end of the server; these modules are imported by it besides."""

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, __file__, *COMMON, *modules]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._server = subprocess.Popen(command, text=True, env=os.environ | QUIET, **pipes)  # type: ignore[call-overload]

    def start(self, arguments: Sequence[str | Path], stderr: Path, afresh: bool = False) -> Forked:
        """`fedpareto ARGUMENTS` in a new process; what it prints goes to the file.

        With `afresh` the children of this process import everything themselves, as they do outside tests.
        """
        stderr.write_text("")
        request = {"start": [str(part) for part in arguments], "stderr": str(stderr), "afresh": afresh}
        return Forked(self, self.ask(request), stderr)

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
    _import(modules)
    codes: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer: int | None = os.fork()
            if answer == 0:
                _become(request["start"], request["stderr"], request["afresh"])
        else:
            pid = request["poll"]
            if pid not in codes and (ended := os.waitpid(pid, os.WNOHANG))[0]:
                codes[pid] = os.waitstatus_to_exitcode(ended[1])
            answer = codes.get(pid)
        print(json.dumps(answer), flush=True)


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        import_module(module)
    gc.freeze()  # Pages that nobody touches are shared by all forks.


def _become(arguments: list[str], stderr: str, afresh: bool) -> NoReturn:
    """Turns this fork into `fedpareto ARGUMENTS`, in a process group of its own as in a terminal."""
    from fedpareto.cli import main

    os.setpgid(0, 0)
    _print_to(Path(stderr))
    if FLOWER[0] in sys.modules and not afresh:
        Nursery.of_this_process().adopt_all()
    sys.argv = ["fedpareto", *arguments]
    _finish(main)


def _print_to(file: Path) -> None:
    target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(target, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _finish(main: Callable[[], object]) -> NoReturn:
    """Does this and ends the process as Python does, with the exit code."""
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


# -- children of these processes -----------------------------------------------------------------------------------


@dataclass
class Nursery:
    """A process that forks on request; what it forks becomes a child of the process that asked."""

    requests: IO[str]
    answers: IO[str]

    @classmethod
    def of_this_process(cls) -> Nursery:
        """A fork of this process, as long as it has one thread only; it ends with this one."""
        (theirs, requests), (answers, ours) = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(requests)
            os.close(answers)
            _nurse(open(theirs), ours)  # noqa: SIM115 (as long as the process lives)
        os.close(theirs)
        os.close(ours)
        return cls(open(requests, "w"), open(answers))

    @classmethod
    @contextmanager
    def of_modules(cls, *modules: str) -> Iterator[Nursery]:
        """A new process that has imported these modules."""
        command = [sys.executable, __file__, "--nursery", *COMMON, *modules]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, text=True, env=os.environ | QUIET, **pipes) as process:  # type: ignore[call-overload]
            yield cls(process.stdin, process.stdout)

    def adopt_all(self, replace: Callable[[object, str, object], None] = setattr) -> None:
        """From now on all `Processes` of this process take their children from here."""
        from fedpareto.engines.flower.launch import Processes

        def begin(processes: Processes, command: Sequence[str], output: Path) -> Any:
            return self.start(command, output, processes.environment())

        replace(Processes, "_begin", begin)

    def start(self, command: Sequence[str], output: Path, environment: Mapping[str, str]) -> Adopted:
        """A Python program, or `python -m MODULE`, as a child of this process."""
        request = {"command": list(command), "output": str(output), "environment": dict(environment)}
        _take_in_orphans(True)
        print(json.dumps(request | {"parent": os.getpid()}), file=self.requests, flush=True)
        child = int(self.answers.readline())
        _take_in_orphans(False)
        return Adopted(child)


def _take_in_orphans(whether: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0)


@dataclass
class Adopted:
    """A child that another process forked, as a `subprocess.Popen`."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.returncode = os.waitstatus_to_exitcode(ended[1])
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _nurse(requests: IO[str], answers: int) -> NoReturn:
    """Forks twice for every request: an orphan goes to the process above that takes orphans in."""
    os.setpgid(0, 0)  # Ctrl-C is not for this process.
    for line in requests:
        middle = os.fork()
        if middle == 0:
            middle = os.getpid()
            if os.fork() == 0:
                os.close(requests.fileno())
                _be_child(json.loads(line), middle, answers)
            os._exit(0)
        os.waitpid(middle, 0)
    os._exit(0)


def _be_child(request: Mapping[str, Any], middle: int, answers: int) -> NoReturn:
    """Waits for its new parent, tells it its number, and becomes what was asked for."""
    from fedpareto.engines.flower.launch import tied

    while os.getppid() == middle:
        time.sleep(0.001)
    tied()
    if os.getppid() != request["parent"]:
        os._exit(1)  # The parent has ended meanwhile.
    os.write(answers, f"{os.getpid()}\n".encode())
    os.close(answers)
    os.setsid()
    _print_to(Path(request["output"]))
    os.environ.clear()
    os.environ.update(request["environment"])
    program, *arguments = request["command"]
    if program == sys.executable:
        _, module, *arguments = arguments
        sys.argv = [module, *arguments]
        _finish(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True))
    sys.argv = [program, *arguments]
    _finish(lambda: runpy.run_path(program, run_name="__main__"))


if __name__ == "__main__":
    if sys.argv[1] == "--nursery":
        _import(sys.argv[2:])
        _nurse(sys.stdin, sys.stdout.fileno())
    _serve(sys.argv[1:])
