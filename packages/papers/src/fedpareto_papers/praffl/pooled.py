"""A federation evaluated as a whole: the test rows of all clients together, each classified by its client's model.

This follows PraFFL's experiments: all clients have the same preference "during each inference" (section 6.3.3), and a
preference is one point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.conditioned import Conditioned, tolerances
from fedpareto.contract.federation import Federation
from fedpareto.contract.groups import GroupedProblem
from fedpareto.runs.loop import Experiment
from fedpareto.spec.spec import Spec
from fedpareto.tensors.rows import Batch

KEY = "pooled"
"""Key of the points in a row of metrics.jsonl."""
AT_ONCE = 50
"""Preferences that are evaluated together; more would only need more memory."""


@dataclass(frozen=True)
class Decided:
    """Decisions of k models on the rows of one client."""

    positive: Tensor
    """`[k, rows]`, ones and zeros."""
    labels: Tensor
    groups: Tensor


@dataclass(frozen=True)
class Pooled:
    """Records, after each round, the points `[k, 3]` of a federation: see `measures`."""

    preferences: int
    """k at the end, for algorithms whose models follow any preference; others have one point."""
    between: int
    """k after the other rounds."""
    _federations: dict[int, Federation] = field(default_factory=dict, repr=False)
    """Federations by seed, partitioned once."""

    def __call__(self, experiment: Experiment, run: int) -> Mapping[str, Any]:
        count = self.preferences if experiment.round == experiment.spec.rounds else self.between
        with torch.no_grad():
            return {KEY: np.round(self._points(experiment, run, count), 5).tolist()}

    def _points(self, experiment: Experiment, run: int, count: int) -> np.ndarray:
        """One row for each of `count` preferences, even steps in the importance of the first objective, or one row."""
        spec, engine = experiment.spec, experiment.engine
        solutions = spec.algorithm.solutions(experiment.states[run])
        rows = {client: self._rows(spec, run, client) for client in solutions}
        anatomy = spec.algorithm.anatomy(spec.problem.layout, len(spec.problem.objectives))
        if anatomy is None:
            models = engine.models(run, solutions)
            return measures([_vote(*rows[client], model) for client, model in models.items()])
        fresh = spec.algorithm.private_state(engine.settings[run])
        kept = {client: engine.private.get((run, 0, client), fresh)["hypernetwork"] for client in solutions}
        blocks = [
            [_conditioned(*rows[c], anatomy, message["body"], kept[c], some) for c, message in solutions.items()]
            for some in torch.split(line(count), AT_ONCE)
        ]
        return np.concatenate([measures(block) for block in blocks])

    def _rows(self, spec: Spec, run: int, client: int) -> tuple[GroupedProblem, Batch]:
        """The problem, and a client's test rows as a stack of one."""
        seed, problem = spec.seeds[run], spec.problem
        assert isinstance(problem, GroupedProblem), "rates of groups are compared"
        if seed not in self._federations:
            self._federations[seed] = spec.federation(seed)
        federation = self._federations[seed]
        rows = federation.splits["test"].of_client(federation.ids.index(client))
        columns = {name: column.unsqueeze(0) for name, column in rows.items()}
        return problem, Batch(columns, torch.ones_like(columns["label"]))


def line(count: int) -> Tensor:
    """Preferences between two objectives in even steps, `[count, 2]`, the second one's importance first."""
    first = torch.linspace(0, 1, count)
    return torch.stack([first, 1 - first], dim=-1)


def _vote(problem: GroupedProblem, batch: Batch, model: Tensor) -> Decided:
    """Decide by a client's model `[d]`, or by an ensemble, `[k, d]`."""
    votes = [
        problem.logits(problem.layout.unflatten(one.unsqueeze(0)), batch).sigmoid()
        for one in model.reshape(-1, model.shape[-1])
    ]
    return _decided(problem, batch, torch.stack(votes).mean(0) > 0.5)


def _conditioned(
    problem: GroupedProblem, batch: Batch, anatomy: Conditioned, body: Tensor, hypernetwork: Tensor, preferences: Tensor
) -> Decided:
    """Decide by the models that a client makes for preferences `[k, m]`."""
    network = anatomy.hypernetwork.layout.unflatten(hypernetwork.unsqueeze(0))
    heads = anatomy.heads(network, tolerances(preferences, anatomy.margin).unsqueeze(0))
    return _decided(problem, batch, problem.logits_each(anatomy.body.unflatten(body.unsqueeze(0)), heads, batch)[0] > 0)


def _decided(problem: GroupedProblem, batch: Batch, positive: Tensor) -> Decided:
    return Decided(positive.float(), problem.labels(batch)[0], problem.groups(batch)[0])


def measures(clients: Sequence[Decided]) -> np.ndarray:
    """For each of the k models `[k, 3]`: error rate, ΔDP (eq. 3), and what PraFFL's published code measures instead.

    That is max_z |P(ŷ = 1 | z) − P(ŷ = 1)|, the largest distance of a group from the population, which for two groups
    is at most ΔDP and about half of it if they are of similar size.
    """
    positive = torch.cat([client.positive for client in clients], dim=-1)
    labels, groups = (torch.cat([getattr(client, name) for client in clients]) for name in ("labels", "groups"))
    error = (positive != labels).float().mean(-1)
    rates = torch.stack([positive[:, groups == group].mean(-1) for group in range(int(groups.max()) + 1)])
    gap = rates.amax(0) - rates.amin(0)
    from_all = (rates - positive.mean(-1)).abs().amax(0)
    return torch.stack([error, gap, from_all], dim=-1).numpy()
