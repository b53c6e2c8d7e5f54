"""Worker processes of this one, which import torch once for all of them."""

from __future__ import annotations

import multiprocessing
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext


def context(*modules: str) -> ForkServerContext | SpawnContext:
    """Return the context that workers come from. A fork of this process may hang, since torch has threads in it.

    On Linux they are forks of a process that has imported torch and these modules, and has done nothing else: it takes
    seconds once, and workers share its memory. Elsewhere each worker imports everything itself.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["torch", *modules])
    return found
