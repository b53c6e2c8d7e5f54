"""The runs behind a reproduction: ordinary run folders, so that a stopped reproduction can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedpareto.errors import UserError
from fedpareto.experiments import runner
from fedpareto.experiments.experiment import Observe, nothing_more
from fedpareto.experiments.progress import LONGEST_SILENCE, Progress, Shown, ShownNowhere
from fedpareto.experiments.spec import Spec, first_difference
from fedpareto.experiments.store import RunFolder


def ensure(
    folder: Path,
    spec: Spec,
    stop: Callable[[], bool] = lambda: False,
    observe: Observe = nothing_more,
    shown: Shown | None = None,
    keep_models: bool = True,
) -> bool:
    """Makes sure that the folder holds this run, finished; returns whether anything had to be trained.

    `keep_models`: see runner.start.
    """
    shown = shown or ShownNowhere(spec, folder)
    if not (folder / "spec.yaml").exists():
        runner.start(spec, folder, shown.round, stop, shown.begin, observe, keep_models)
        return True
    different = first_difference(RunFolder(folder).spec().to_mapping(), spec.to_mapping())
    if different:
        raise UserError(f"{folder} holds a run with {different}; choose another --out")
    return runner.resume(folder, shown.round, stop, shown.begin, None, observe, keep_models) is not None


class Pulse(Shown):
    """For a long training, one message a minute."""

    def begin(self, done: int) -> None:
        """See Shown."""
        self.first = self.last = (done, time.monotonic())

    def round(self, now: Progress) -> None:
        """See Shown."""
        if time.monotonic() - self.last[1] >= LONGEST_SILENCE:
            super().round(now)
