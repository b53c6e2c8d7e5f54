"""FairBatch: Roh et al., "FairBatch: batch selection for model fairness", 2021, inside each of n clients.

Of the rows with label y, group z gets the share λ_{y,z} of the loss, at first its share of the rows. After every epoch
λ moves by α towards the group that is worse off. The paper draws batches by λ; here rows are weighted by it, which is
the same in expectation. For two groups this is the paper's update; of more, the extremes are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from fedpareto.contract.clients import Clients
from fedpareto.contract.groups import Comparison, GroupedProblem, cells, grouped, row_weights, sums
from fedpareto.contract.messages import Message
from fedpareto.tensors.rows import Batch

KEPT = ("shift", "losses", "seen")
"""Names of what a client keeps between rounds."""


@dataclass
class Shares:
    """λ of n clients, and their sums over the current epoch."""

    comparison: Comparison
    rows: Tensor
    """Number of training rows m_{y,z} that a client has of each label and group, `[n, 2, groups]`."""
    shift: Tensor
    """Difference of λ_{y,z} from the natural share m_{y,z} / m_y, `[n, 2, groups]`."""
    losses: Tensor
    """Sum of the losses so far in the current epoch, `[n, 2, groups]`."""
    seen: Tensor
    """Number of rows behind it, `[n, 2, groups]`."""

    @property
    def natural(self) -> Tensor:
        """m_{y,z} / m_y."""
        return self.rows / self.rows.sum(-1, keepdim=True).clamp_min(1)

    @property
    def weights(self) -> Tensor:
        """λ_{y,z} · m_y / m_{y,z}: the weight of a row, 1 on average over the rows of a label."""
        natural = self.natural
        return torch.where(self.rows > 0, (natural + self.shift) / natural.clamp_min(1e-12), 1)

    def see(self, losses: Tensor, here: Tensor, alpha: float) -> None:
        """Adds the losses `[n, b]` of a minibatch; a client at the end of an epoch adapts its λ."""
        self.losses = self.losses + sums(losses, here)
        self.seen = self.seen + here.sum(-1)
        over = (self.seen.sum((1, 2)) >= self.rows.sum((1, 2)))[:, None, None]
        self.shift = torch.where(over, self.shift + self.step(alpha), self.shift)
        self.losses, self.seen = self.losses * ~over, self.seen * ~over

    def step(self, alpha: float) -> Tensor:
        """Move, for the label with the largest disparity, α of the loss from the best-off group to the worst-off."""
        needs, present = self.needs(), self.seen > 0
        most, worst = needs.where(present, -torch.inf).max(-1)
        least, best = needs.where(present, torch.inf).min(-1)
        spread = most - least
        if None not in self.comparison.labels:
            others = [label for label in (0, 1) if label not in self.comparison.labels]
            spread[:, others] = -torch.inf
        groups = self.comparison.groups
        direction = one_hot(worst, groups) - one_hot(best, groups)
        share = (self.natural + self.shift).gather(-1, best.unsqueeze(-1))
        here = one_hot(spread.argmax(-1), 2).unsqueeze(-1)
        return here * direction * share.clamp(0, alpha)

    def needs(self) -> Tensor:
        """Need of the rows of a cell, `[n, 2, groups]`: what is to be equal over the groups.

        Their mean loss. For demographic parity, whose losses are those against a positive decision, over the rows of
        the whole group; and the more positive decisions the negative rows of a group lack, the less they should count.
        """
        if None not in self.comparison.labels:
            return self.losses / self.seen.clamp_min(1)
        of_group = self.losses / self.seen.sum(1, keepdim=True).clamp_min(1)
        return torch.stack([-of_group[:, 0], of_group[:, 1]], dim=1)


def private_state(comparison: Comparison, like: Tensor) -> Message:
    """Tensors that a new client keeps between rounds: an epoch may be longer than a round."""
    return {name: like.new_zeros(2, comparison.groups) for name in KEPT}


def learn(clients: Clients, model: Tensor, alpha: float, algorithm: str) -> Tensor:
    """Local training of `model` `[n, d]` on cross entropy weighted by λ, which `clients.state` keeps."""
    problem = grouped(clients, algorithm)
    given = {name: clients.state[name] for name in KEPT}
    given["rows"] = cells(problem, clients.all_rows("train")).sum(-1)
    trained = clients.minimise(model, problem.layout, Adapting(problem, alpha), given)
    clients.state = {**clients.state, **{name: given[name] for name in KEPT}}
    return trained


@dataclass(frozen=True)
class Adapting:
    """Cross entropy weighted by λ, which it adapts after each epoch of a client."""

    problem: GroupedProblem
    alpha: float

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """Losses `[n]`; `given` holds `Shares`, and what clients keep of them is changed in place."""
        problem = self.problem
        shares = Shares(problem.comparison, **{name: given[name] for name in ("rows", *KEPT)})
        here, labels = cells(problem, batch), problem.labels(batch)
        logits = problem.logits(parameters, batch)
        weighted = row_weights(shares.weights, here) * _entropy(logits, labels)
        wanted = torch.ones_like(labels) if None in problem.comparison.labels else labels
        shares.see(_entropy(logits.detach(), wanted), here, self.alpha)
        for name in KEPT:
            given[name].copy_(getattr(shares, name))
        return batch.mean(weighted)


def _entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(logits, labels, reduction="none")
