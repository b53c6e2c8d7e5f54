"""Number and place of the pieces of a command that run at a time: `--jobs 4`, or `--jobs ray` on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.cli.console import say
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Interrupts, Stopped

if TYPE_CHECKING:
    from fedpareto.campaigns.parallel import Jobs

RAY = "ray"
ON_A_GPU = "engine.device=cuda"

HowMany = Annotated[
    str | None,
    typer.Option(
        "--jobs", metavar="N|ray", help="Number of jobs at a time, or ray: on a cluster.  [default: 1 per core]"
    ),
]
Address = Annotated[
    str | None,
    typer.Option(help="Address of Ray for --jobs ray, or auto.  [default: RAY_ADDRESS, or a Ray on this machine]"),
]


def on_gpu(settings: Sequence[str]) -> bool:
    """Return True if `--set` puts every piece on a GPU."""
    return any(text.replace(" ", "").startswith(ON_A_GPU) for text in settings)


def chosen(jobs: str | None, address: str | None, on_gpu: bool) -> Jobs:
    """Return the user's choice: one job per core, but one on a GPU, which a single stack of clients uses better."""
    if jobs == RAY:
        from fedpareto.campaigns.parallel import on_ray

        return on_ray(address or "", gpus=int(on_gpu))
    if address is not None:
        raise UserError(f"--address {address} is that of a Ray cluster; it goes with --jobs {RAY}")
    if jobs is None:
        return 1 if on_gpu else os.cpu_count() or 1
    if not jobs.isdecimal() or int(jobs) < 1:
        raise UserError(f"--jobs {jobs}: write how many, at least 1, or {RAY}")
    return int(jobs)


@contextmanager
def stoppable(kept: Callable[[], str]) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C or SIGTERM stop the block, once or twice; yield whether it is to stop.

    Then `kept` says what is kept and how to go on, and the exit code tells which signal it was.
    """
    with Interrupts() as interrupts:
        try:
            yield interrupts.asked
        except (Stopped, KeyboardInterrupt) as stopped:
            say(f"{str(stopped) or 'interrupted'}; {kept()}")
            raise typer.Exit(interrupts.exit_code) from None
