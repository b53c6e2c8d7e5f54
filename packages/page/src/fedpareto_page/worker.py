"""A process beside the page's own for what needs torch: the page's process never imports it, and never waits for it.

Questions and answers are lines of JSON over pipes, one at a time. The process begins with the first question, is begun
anew if it dies, and ends with the page, however that ends: it has nothing to read any more. A question that takes long
is given up as soon as another one has waited as long.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

from fedpareto.config.errors import UserError, in_words
from fedpareto.config.files import python
from fedpareto.contract import consent

TRIES = 2
"""Processes that one question may cost; a question that kills two would kill a third."""

LONGEST = 20.0
"""Seconds that a question may take while another one waits."""

Answering = Callable[[str, Any], Any]
"""A worker's function: from a job's name and what it is given to the answer, both as JSON can hold them."""


class WorkerFailed(RuntimeError):
    """A job ended by an error that is not the user's; the process has printed where."""


@dataclass
class Worker:
    """One process that answers questions by a function of its own."""

    target: str
    """Name of that function, "module:function"; see `Answering`. Its module is imported over there, not here."""
    longest: float = LONGEST
    blind: bool = False
    """Refuse every request that would read data."""
    _process: subprocess.Popen[str] | None = None
    _began: float = 0.0
    """Time at which the question under way was begun."""
    _given_up: bool = False
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, name: str, payload: Any = None) -> Any:
        """The answer to a named job. It waits for its turn, so call it from a thread.

        Raises UserError with the job's own message, WorkerFailed if the job has a fault.
        """
        line = json.dumps([name, payload])
        self._wait()
        try:
            self._began, self._given_up = time.monotonic(), False
            for _ in range(TRIES):
                answer = self._try(line)
                if answer is not None:
                    return _opened(answer)
                if self._given_up:
                    raise UserError(
                        f"this took more than {self.longest:g} seconds while others waited, and was given up; "
                        "fedpareto run in a terminal takes the time that it needs"
                    )
        finally:
            self._turn.release()
        raise WorkerFailed(f"the process for '{name}' ended twice without an answer; is there enough memory?")

    def _wait(self) -> None:
        """Waits for its turn; ends the process of a question that takes too long."""
        while not self._turn.acquire(timeout=self.longest):
            if time.monotonic() - self._began >= self.longest:
                self._given_up = True
                self.close()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError), process:  # Of a question that it did not read to the end.
                process.kill()

    def _try(self, line: str) -> str | None:
        """The process's answer to a line; None if it is dead."""
        if self._process is None:
            self._process = self._begin()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except (OSError, ValueError):  # The pipe is broken, or was closed by close().
            answer = ""
        if answer.endswith("\n"):
            return answer
        self.close()
        return None

    def _begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            python(__name__, self.target),
            env=consent.strict(self.blind),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for the page, which ends its workers in order.
        )


def _opened(line: str) -> Any:
    answer = json.loads(line)
    if "wrong" in answer:
        raise UserError(answer["wrong"])
    if "failed" in answer:
        raise WorkerFailed(answer["failed"])
    return answer["answer"]


def main(target: str) -> None:
    """The worker's own process: answers lines until there are no more."""
    questions, answers = _pipes()
    module, _, function = target.partition(":")
    answering: Answering = getattr(importlib.import_module(module), function)
    for line in questions:
        answers.write(json.dumps(_answer(answering, *json.loads(line))) + "\n")
        answers.flush()


def _pipes() -> tuple[IO[str], IO[str]]:
    """Pipes for questions and answers; what anything else prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return os.fdopen(os.dup(0), "r", encoding="utf-8"), answers


def _answer(answering: Answering, name: str, payload: Any) -> dict[str, Any]:
    try:
        return {"answer": answering(name, payload)}
    except UserError as problem:
        return {"wrong": str(problem)}
    except Exception as problem:  # The page says so, and goes on.
        sys.excepthook(type(problem), problem, problem.__traceback__)
        return {"failed": f"{type(problem).__name__}: {in_words(problem)}"}


if __name__ == "__main__":
    main(sys.argv[1])
