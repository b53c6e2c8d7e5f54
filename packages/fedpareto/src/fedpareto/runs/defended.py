"""Oversight of replies before the algorithm hears of them: what each is worth, and whom the server believes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedpareto.contract.algorithm import Setting
from fedpareto.contract.messages import Outcome, Replies, Tasks, only_of
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.record.recording import Entry, Recorder
from fedpareto.spec.spec import Spec
from fedpareto.trust.confidence import Standing
from fedpareto.trust.contribution import Judge, contributions


class Oversight:
    """The defence of a run, with what it remembers of each seed's clients."""

    def __init__(self, spec: Spec, settings: Sequence[Setting], recorder: Recorder) -> None:
        self.spec, self.recorder = spec, recorder
        remembers = spec.defence.remembers
        self.standings = [Standing.unknown(setting.clients) if remembers else None for setting in settings]
        self._judges = [_judge(spec, setting) for setting in settings]
        self.acts = spec.defence.rule != "none" or spec.measure_contribution
        """True if it looks at replies at all."""

    def askable(self, run: int, tasks: Sequence[Tasks]) -> Sequence[Tasks]:
        """The tasks without those of blocked clients; all of them, if nobody else would be asked."""
        standing = self.standings[run]
        if standing is None:
            return tasks
        return only_of(tasks, self.spec.defence.trusted(standing)) or tasks

    def told(self, run: int, entry: Entry, outcome: Outcome) -> Replies:
        """Return what the algorithm receives; the rest is noted."""
        replies, defence = outcome.replies, self.spec.defence
        if self.spec.measure_contribution:
            found = contributions(outcome.tasks, replies, self._judges[run])
            if found is not None:
                self.recorder.note_contributions(entry, *found)
        defended = defence.applied(outcome.tasks, replies, self.standings[run])
        self.recorder.note_clients(entry, defended.notes())
        self.standings[run] = standing = defended.standing
        if standing is not None:
            blocked = standing.clients[standing.blocked(defence.prior, defence.certainty)]
            self.recorder.note_clients(entry, {"blocked": blocked.tolist()})
            self.recorder.describe(entry, {"confidence": torch.as_tensor(standing.confidence(defence.prior))})
        return defended.replies

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def save(self, checkpoint: Checkpoint) -> None:
        """Adds what is remembered."""
        for run, standing in enumerate(self.standings):
            if standing is not None:
                checkpoint.put_tensors(f"standing/{run}", standing.tensors())

    def restore(self, checkpoint: Checkpoint) -> None:
        self.standings = [
            None if standing is None else standing.restored(checkpoint.get_tensors(f"standing/{run}"))
            for run, standing in enumerate(self.standings)
        ]


def _judge(spec: Spec, setting: Setting) -> Judge | None:
    """The objectives on the server's own rows under the preference that all clients share, or else their mean; turned
    so that larger is better.
    """
    judge = setting.judge
    if judge is None or not spec.measure_contribution or not isinstance(spec.problem, SupervisedProblem):
        return None
    signs = torch.tensor([1.0 if one.maximise else -1.0 for one in spec.problem.objectives], dtype=torch.float64)
    weights = signs * torch.tensor(setting.preference or [1 / len(signs)] * len(signs), dtype=torch.float64)

    def worth(models: Tensor) -> Tensor:
        return judge(models)[:, 0].double().cpu() @ weights

    return worth
