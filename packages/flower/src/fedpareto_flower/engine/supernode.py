"""Flower's SuperNode, with shorter pauses than its own.

    python -m fedpareto_flower.engine.supernode 0.03 --insecure --superlink 127.0.0.1:8000 …

Flower's loop sleeps for 3 seconds between two polls for a message and for half a second between two polls for the
reply, and has no option for either: an exchange without work takes 4 seconds, nearly all of them asleep. The first
argument is the share of these pauses that is kept in the beginning of a wait (see pauses); all others are those of
`flower-supernode`.
"""

from __future__ import annotations

import sys
import time
from functools import partial

from flwr.supercore.constant import PULL_INITIAL_BACKOFF
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supernode import start_client_internal as loop
from flwr.supernode.cli.flower_supernode import flower_supernode

from fedpareto_flower.engine.pauses import LONGEST, pause_after


class _Clock:
    """Stands for `time` in Flower's loop."""

    def __init__(self, share: float) -> None:
        self._share, self._since = share, time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Shorter than Flower wants it."""
        pause = seconds * self._share
        if seconds < LONGEST:  # It waits for a reply, for which it looks in its own memory.
            self._since = time.monotonic()
        else:
            pause = pause_after(time.monotonic() - self._since, pause)
        time.sleep(pause)


def hasten(share: float) -> None:
    """Shortens every pause of the SuperNode's loop in this process."""
    # Flower's module gets a clock of its own. If a later version ignores it, the SuperNode is slow again.
    vars(loop)["time"] = _Clock(share)
    vars(loop)["pull_objects"] = partial(pull_objects, initial_backoff=PULL_INITIAL_BACKOFF * share)


def main(share: str, *arguments: str) -> None:
    """Runs a SuperNode until it is ended."""
    hasten(float(share))
    sys.argv = ["flower-supernode", *arguments]
    flower_supernode()


if __name__ == "__main__":
    main(*sys.argv[1:])
