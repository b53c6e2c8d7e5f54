"""Stops of a run: by Ctrl-C, by SIGTERM, or by a file in its folder. It can be resumed afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedpareto.config.files import write_atomically

FILE = "stop"
"""In a run's folder, or in that of many runs: a request to stop."""
NOW = "now"
"""Content of the file if the round under way is not to be waited for."""
LOOK = 0.5
"""Seconds between two looks for a request that is not to wait."""


class Stopped(Exception):
    """The user stopped the run; the folder can be resumed."""


class RunStopped(Stopped):
    """A stop by the file in the run's own folder: of many runs, the others go on."""


class Interrupts:
    """Ctrl-C or SIGTERM ends a run after the current round, with everything saved; a second one ends it at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self.at_once = False
        """True if the next signal ends the run at once, though it may be the first."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._on_signal) for number in self.SIGNALS}
        return self

    def __exit__(self, *trouble: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def asked(self) -> bool:
        return self.received is not None

    @property
    def exit_code(self) -> int:
        """As a shell gives it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.received or signal.SIGINT)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self.at_once or self.received is not None:
            self.at_once = False
            raise KeyboardInterrupt
        self.received = number
        # Straight to the file: the signal may have come in the middle of a print.
        with suppress(OSError):
            os.write(2, b"\nstopping after this round (once more: at once)\n")


class StopFile:
    """A request to stop, in a folder that a process works on; without a folder there are no requests."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / FILE
        self.obeyed_at_once = False
        """True if a request interrupted what was under way."""

    def write(self, now: bool = False) -> None:
        assert self.path is not None, "a request has a folder"
        write_atomically(self.path, f"{NOW}\n" if now else "after the round\n")

    def clear(self) -> None:
        """Take the request back, or note that it was obeyed."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def asked(self) -> bool:
        return self.path is not None and os.path.exists(self.path)

    def asked_at_once(self) -> bool:
        """Return True if the request is not to wait for the round under way."""
        if self.path is None:
            return False
        try:
            return self.path.read_text(encoding="utf-8", errors="replace").strip() == NOW
        except OSError:
            return False

    @contextmanager
    def watched(self, in_a_round: bool = True) -> Iterator[None]:
        """In this block, a request that is not to wait is a KeyboardInterrupt; outside of a round, any is.

        Only in the main thread, where Python receives signals, and where Ctrl-C is ours or Python's own to handle:
        otherwise the block looks for requests itself.
        """
        if self.path is None or threading.current_thread() is not threading.main_thread() or not _interruptible():
            yield
            return
        over, wanted = threading.Event(), self.asked_at_once if in_a_round else self.asked

        def look() -> None:
            while not over.wait(LOOK):
                if wanted():
                    self.obeyed_at_once = True
                    self.clear()
                    _interrupt()
                    return

        thread = threading.Thread(target=look, name="stop file", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def either(stop: Callable[[], bool], folder: Path) -> Callable[[], bool]:
    """Return a function that tells whether to stop: because `stop` says so, or a file in the folder, which is then
    obeyed.
    """
    file, asked = StopFile(folder), False
    file.clear()

    def is_asked() -> bool:
        nonlocal asked
        if file.asked():
            asked = True
            file.clear()
        return asked or stop()

    return is_asked


def _interruptible() -> bool:
    handler = signal.getsignal(signal.SIGINT)
    return handler is signal.default_int_handler or isinstance(getattr(handler, "__self__", None), Interrupts)


def _interrupt() -> None:
    """Interrupt as Ctrl-C does, and in the same way: so it also ends a wait."""
    ours = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if isinstance(ours, Interrupts):
        ours.at_once = True
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)
