"""Additions of a user to a run: objects that are told of its beginning, of every round and of its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from torch import Tensor

from fedpareto.contract.algorithm import State
from fedpareto.contract.engine import Engine
from fedpareto.contract.messages import Replies
from fedpareto.record.recording import Recorder
from fedpareto.runs.progress import Progress
from fedpareto.runs.result import Result
from fedpareto.spec.spec import Spec

log = logging.getLogger("fedpareto.run")

Ending = Literal["finished", "stopped", "failed"]


class Callback:
    """Follows a run. Override what you need; `True` from `on_round` ends the run after that round, with its result.

    A callback that raises is named in one line and left alone from then on; the run goes on as if it were not there.
    It works where the loop works: beside a server, it sees what the server sees, and never a client's rows,
    preference or private state; under a secure sum, replies are their mean.
    """

    def on_begin(self, run: Run) -> None:
        """Called once all is ready; of a run that goes on, after its last checkpoint was read."""

    def on_round(self, run: Run) -> bool | None:
        """A round is over and recorded. True: it was the last."""

    def on_end(self, run: Run, how: Ending, result: Result | None) -> None:
        """Called when nothing more will come; with the result of a run that `finished`."""


class Followed(Protocol):
    """The parts of a run that callbacks may see."""

    spec: Spec
    engine: Engine
    states: list[State]
    recorder: Recorder

    @property
    def round(self) -> int: ...


class Run:
    """A run as a callback sees it."""

    def __init__(self, experiment: Followed) -> None:
        self._experiment = experiment
        self.progress: Progress | None = None
        """The last round that is over, with the means of objectives; None before."""
        self.replies: Sequence[Replies | None] = [None] * len(experiment.states)
        """Replies that the algorithm of each seed was told last: tensors by name, a row for each client."""

    @property
    def spec(self) -> Spec:
        """Spec that is run."""
        return self._experiment.spec

    @property
    def round(self) -> int:
        """Rounds that are over."""
        return self._experiment.round

    @property
    def history(self) -> Sequence[Mapping[str, Any]]:
        """The rows of all rounds so far, as `metrics.jsonl` has them."""
        return self._experiment.recorder.history

    @property
    def splits(self) -> Sequence[str]:
        """The parts of the data on which objectives are measured, by name."""
        return self._experiment.recorder.columns.splits

    def models(self, seed: int = 0) -> Mapping[int, Tensor]:
        """Models `[d]` by client that clients of a seed, by its place among the seeds, would use now.

        Where clients are nodes: as far as the server may know them. Computed when it is called.
        """
        experiment = self._experiment
        solutions = experiment.spec.algorithm.solutions(experiment.states[seed])
        return experiment.engine.models(seed, solutions)


class Callbacks:
    """Callbacks of a run. One that fails is left alone from then on."""

    def __init__(self, callbacks: Sequence[Callback], experiment: Followed) -> None:
        self._those = list(callbacks)
        self._run = Run(experiment)

    def __bool__(self) -> bool:
        return bool(self._those)

    def begin(self) -> None:
        self._each("on_begin", lambda one: one.on_begin(self._run))

    def round(self, progress: Progress, replies: Sequence[Replies | None]) -> str:
        """Tell all that a round is over; return who ends the run after it, empty: nobody."""
        self._run.progress, self._run.replies = progress, tuple(replies)
        ends = self._each("on_round", lambda one: one.on_round(self._run))
        self._run.replies = [None] * len(replies)  # The next round needs their memory.
        return ends

    def end(self, how: Ending, result: Result | None = None) -> None:
        self._each("on_end", lambda one: one.on_end(self._run, how, result))

    def _each(self, what: str, act: Callable[[Callback], bool | None]) -> str:
        ends = ""
        for one in list(self._those):
            try:
                if act(one) is True and not ends:
                    ends = type(one).__name__
            except Exception as problem:
                self._those.remove(one)
                why = " ".join(str(problem).split()) or "no reason given"
                name, kind = type(one).__name__, type(problem).__name__
                log.warning("%s of the callback %s: %s: %s; the run goes on without it", what, name, kind, why)
        return ends
