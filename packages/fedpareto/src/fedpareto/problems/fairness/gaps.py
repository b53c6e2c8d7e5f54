"""Gaps between groups over a stack of clients: what group fairness measures.

A gap is the difference between the groups' rates of positive decisions, among all rows or among those with a certain
label. A rate of a group that has no such row is unknown, and so is a gap between fewer than two known rates. An
unknown gap is given as 0 without a gradient, with a flag that it is unknown: a batch without one of the groups then
adds no misleading gradient, and a metric need not count it as fair.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedpareto.tensors.rows import Batch

SENSITIVE = "sensitive"
"""The column of a batch with each row's group (0, 1, …; below 0: none), unless there are several such columns."""

CONDITIONS: dict[str, tuple[int | None, ...]] = {
    "demographic-parity": (None,),
    "equal-opportunity": (1,),
    "equalised-odds": (1, 0),
}
"""Each notion of fairness (eqs. 5.1 to 5.3 of the thesis) by the labels among whose rows the groups are compared."""


class Gap(NamedTuple):
    """A gap for each of n clients."""

    size: Tensor
    """`[n]`; 0 where it is not known."""
    known: Tensor
    """`[n]`, true or false."""


def gap(notion: str, decisions: Tensor, batch: Batch, sensitive: str = SENSITIVE, groups: int = 2) -> Gap:
    """The size of the gap by a notion of fairness, for decisions `[n, b]`, hard or relaxed.

    With more than two groups it is the largest rate less the smallest, and equalised odds is the larger of its two
    gaps (known if both are), as in fairlearn; groups without rows do not count.
    """
    sizes, known = [], []
    for label in CONDITIONS[notion]:
        one = _gap(decisions, batch, label, sensitive, groups)
        sizes.append(one.size.abs())
        known.append(one.known)
    if len(sizes) == 1:
        return Gap(sizes[0], known[0])
    return Gap(torch.stack(sizes).amax(0), torch.stack(known).all(0))


def gap_slopes(notion: str, decisions: Tensor, batch: Batch, sensitive: str = SENSITIVE, groups: int = 2) -> Tensor:
    """∂gap/∂decisions, `[n, b]`: a row of the group with the largest rate raises the gap by its share of that group."""
    slopes, sizes = [], []
    codes = torch.arange(groups, device=decisions.device)
    for label in CONDITIONS[notion]:
        counted = members(batch, label, sensitive, groups)
        rows = counted.sum(-1)
        shares, present = counted / rows.clamp_min(1).unsqueeze(-1), rows > 0
        rates = (decisions.unsqueeze(-2) * shares).sum(-1)
        largest, smallest = torch.where(present, rates, -1).argmax(-1), torch.where(present, rates, 2).argmin(-1)
        signs = (codes == largest.unsqueeze(-1)).to(rates) - (codes == smallest.unsqueeze(-1)).to(rates)
        slopes.append((signs.unsqueeze(-1) * shares).sum(-2))
        sizes.append((signs * rates).sum(-1))
    if len(slopes) == 1:
        return slopes[0]
    first, second = slopes
    return torch.where((sizes[0] >= sizes[1]).unsqueeze(-1), first, second)


def hard_decisions(logits: Tensor) -> Tensor:
    return (logits > 0).to(logits.dtype)


def relaxed_decisions(logits: Tensor, steepness: float) -> Tensor:
    """tanh(c·max(0, 2f − 1)) with f the predicted probability: eq. 5.5 without its halving.

    It tends to the decision f > ½ as c grows; eq. 5.5 as printed, halved and shifted, tends to half the gap.
    """
    return _relaxed(torch.sigmoid(logits), steepness)


def relaxed_slopes(logits: Tensor, steepness: float) -> tuple[Tensor, Tensor]:
    """Relaxed decisions t and dt/dlogit = 2c·f·(1 − f)·(1 − t²) where f > ½, else 0."""
    likely = torch.sigmoid(logits)
    decisions = _relaxed(likely, steepness)
    return decisions, 2 * steepness * (likely * (1 - likely)) * (1 - decisions.square()) * (logits > 0)


def _relaxed(likely: Tensor, steepness: float) -> Tensor:
    return torch.tanh(steepness * (2 * likely - 1).clamp_min(0))


def members(batch: Batch, label: int | None, sensitive: str = SENSITIVE, groups: int = 2) -> Tensor:
    """1 where a row is real, has the label (None: any) and belongs to the group, else 0; `[n, groups, b]`."""
    counted = batch.mask
    if label is not None:
        counted = counted * (batch.columns["label"] if label else 1 - batch.columns["label"])
    codes = torch.arange(groups, device=counted.device).unsqueeze(-1)
    return (batch.columns[sensitive].unsqueeze(-2) == codes) * counted.unsqueeze(-2)


def _gap(decisions: Tensor, batch: Batch, label: int | None, sensitive: str = SENSITIVE, groups: int = 2) -> Gap:
    """Signed for two groups, as in eq. 5.4; else the largest rate less the smallest."""
    counted = members(batch, label, sensitive, groups)
    sizes = counted.sum(-1)
    rates = (decisions.unsqueeze(-2) * counted).sum(-1) / sizes.clamp_min(1)
    present = sizes > 0
    if groups == 2:
        known = present.all(-1)
        size = rates[..., 0] - rates[..., 1]
    else:
        known = present.sum(-1) >= 2
        # Rates lie in [0, 1], so that an absent group is neither the largest nor the smallest.
        size = torch.where(present, rates, -1).amax(-1) - torch.where(present, rates, 2).amin(-1)
    return Gap(size * known, known)


# -- relaxations, for training -------------------------------------------------------------------------------------


STEEPNESS = {"demographic-parity": 1.5, "equal-opportunity": 2.5, "equalised-odds": 2.5}
"""c of the tanh relaxation: Padh et al. (2021), whose tanh(3·(f − ½)) and tanh(5·(f − ½)) these are in eq. 5.5."""


def relaxed_gap(
    relaxation: str,
    notion: str,
    logits: Tensor,
    batch: Batch,
    sensitive: str = SENSITIVE,
    groups: int = 2,
    steepness: float = 0.0,
) -> Tensor:
    """A gap `[n]` of the predictions `logits` `[n, b]` that has a gradient; 0 without a gradient where it is unknown.

    With f = sigmoid(logit) and t = tanh(c·max(0, 2f − 1)):

    - "tanh": the gap of t, which tends to the metric as c grows;
    - "tanh-halved": the gap of t/2 + ½, eq. 5.5 of the thesis as printed, half of the former;
    - "tanh-masked": the gap of t/2 + ½ where f > ½ and of 0 elsewhere, as in the code of Padh et al.: it tends to the
      metric too, but jumps where a decision turns;
    - "covariance": see `covariance`; it does not use c.

    `steepness` is c; 0 means the notion's own.
    """
    if relaxation == "covariance":
        return covariance(notion, logits, batch, sensitive, groups)
    decisions = _named(relaxation, relaxed_decisions(logits, steepness or STEEPNESS[notion]), logits)
    return gap(notion, decisions, batch, sensitive, groups).size


def relaxed_gap_slopes(
    relaxation: str, notion: str, logits: Tensor, batch: Batch, sensitive: str, groups: int, steepness: float
) -> Tensor:
    """∂relaxed_gap/∂logits, `[n, b]`, of the relaxations by tanh, written out."""
    decisions, slopes = relaxed_slopes(logits, steepness or STEEPNESS[notion])
    slopes = gap_slopes(notion, _named(relaxation, decisions, logits), batch, sensitive, groups) * slopes
    return slopes if relaxation == "tanh" else slopes / 2


def _named(relaxation: str, decisions: Tensor, logits: Tensor) -> Tensor:
    """t as a relaxation by tanh takes it; see `relaxed_gap`."""
    if relaxation == "tanh":
        return decisions
    halved = decisions / 2 + 0.5
    return halved if relaxation == "tanh-halved" else halved * (logits > 0)


def covariance(notion: str, logits: Tensor, batch: Batch, sensitive: str = SENSITIVE, groups: int = 2) -> Tensor:
    """mean_i [(s_i − s̄)(z_i − z̄)]² with z the logit: the term in the code of PraFFL (Ye & Tang, 2024), `[n]`.

    It is no relaxation of a gap: it is not bounded by 1, and it is 0 only if nothing varies. PraFFL sums it over the
    two logits of its classifier, ours has one. For more than two groups it is half the sum over the indicators of the
    groups, which for two is the same. Conditional notions take the rows with the label, equalised odds the larger
    value of its two.
    """
    terms = []
    for label in CONDITIONS[notion]:
        counted = members(batch, label, sensitive, groups)  # [n, groups, b]
        known = ((counted.sum(-1) > 0).sum(-1) >= 2).to(logits.dtype)
        rows = counted.sum(-2)
        total = rows.sum(-1, keepdim=True).clamp_min(1)
        away = logits - (logits * rows).sum(-1, keepdim=True) / total
        share = counted.sum(-1, keepdim=True) / total.unsqueeze(-1)
        products = (counted - share) * away.unsqueeze(-2) * rows.unsqueeze(-2)
        terms.append(known * products.square().sum((-1, -2)) / (2 * total.squeeze(-1)))
    return torch.stack(terms).amax(0)
