"""PraFFL: Ye et al., "PraFFL: a preference-aware scheme in fair federated learning", 2024. Algorithm 1.

One training, and every client has a model for any preference. The first layers of the model, the body ω, are shared;
the last ones, the head φ, are made by a hypernetwork β that is private to the client: φ = β(λ).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms._shared.local_loss import found_under, under
from fedpareto.config.bounds import Above, Count, Positive, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.conditioned import Conditioned, inside, tolerances
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.moo import scalarise
from fedpareto.moo.preferences import equidistant
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch

FROZEN = "frozen "
"""Begins the names of tensors that a loss is given and that stand still."""
COMPARED = 11
"""Preferences, evenly spread, under which a client compares two bodies."""
LARGEST_MARGIN = 0.05
"""More would leave little of the simplex."""


@dataclass(frozen=True)
class PraFFLState(State):
    """The shared body ω, `[c]`."""

    body: Tensor = torch.empty(0)


@dataclass(frozen=True)
class PraFFL(Algorithm[PraFFLState]):
    """A shared body, and on each client a private hypernetwork that turns a preference into the head of its model.

    The problem's first objective is the one that the body learns (L_1 of eq. 11). Preferences are importances, as
    everywhere; `tolerances` converts them to the paper's λ. Epochs are PraFFL's own, the rest is the learner's; the
    paper has 10, 20 and 64 where `body_epochs`, `head_epochs` and `sampled` are 1, 4 and 16, for a first try.
    """

    name: ClassVar[str] = "praffl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client",
        "client-led",
        "Tchebycheff over random preferences, averaging",
        "arbitrary",
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    averages: ClassVar[bool] = True
    needs: ClassVar[Needs] = "weighted sum"
    sums: ClassVar[bool] = True
    personalised: ClassVar[bool] = True

    head_layers: Count = 2
    """Layers at the end of the model that the hypernetwork makes; all the others are the body."""
    body_epochs: Whole = 1
    """τ_c, passes over a client's data for the body in one round."""
    head_epochs: Whole = 4
    """τ_p, passes over a client's data for the hypernetwork in one round."""
    sampled: Count = 16
    """n_λ, preferences drawn for each minibatch."""
    scalarisation: Literal["tchebycheff", "smooth-tchebycheff", "linear"] = "tchebycheff"
    """Scalarisation of several losses under a preference: eq. 6, its smooth form (as in the published code), or eq. 5.
    """
    smoothing: Positive = 1.0
    """μ of the smooth form; the published code has 1."""
    balanced: bool = True
    """Division of g by Σ 1/λ_j. That moves no optimum, but preferences near the edges then weigh no more than others in
    eq. 13, and plain SGD stays stable despite 1/λ. False: eq. 13 to the letter, for Adam.
    """
    hypernetwork: tuple[Count, ...] = (4, 4)
    """Widths of the hypernetwork's hidden layers; the last of them has no ReLU."""
    margin: Annotated[float, Above(0, LARGEST_MARGIN)] = 0.01
    """Distance that λ keeps from 0, where eq. 6 has no meaning."""
    used_body: Literal["best", "shared", "own"] = "best"
    """Body with which a client's heads are used: the shared one, as in the paper; the one that the client trained last,
    for which its heads were made; or, with "best", which of the two has the smaller g on its validation rows.
    """

    @property
    def cost(self) -> str:
        """A round is as many passes over the rows as there are epochs, most of them under many preferences."""
        passes, s = self.body_epochs + self.head_epochs, "s" if self.sampled > 1 else ""
        return (
            f"in each round a client goes over its rows {passes} times, in {self.head_epochs} of them under "
            f"{self.sampled} preference{s} at once: as much as {self.body_epochs + self.head_epochs * self.sampled} "
            "passes of fedavg at the most"
        )

    # -- the server half: plain averaging of the bodies ------------------------------------------------------------

    def begin(self, setting: Setting) -> PraFFLState:
        """ω¹, the first layers of the initial model."""
        if len(setting.objectives) < 2:
            name = setting.objectives[0].name
            raise UserError(f"praffl needs at least 2 objectives to prefer between; this problem has one, '{name}'")
        body = self.anatomy(setting.layout, len(setting.objectives)).body
        return PraFFLState(setting, body=setting.initial[: body.size].clone())

    def ask(self, state: PraFFLState) -> list[Tasks]:
        """Line 3: every participant gets the body."""
        return to_participants(state, body=state.body)

    def tell(self, state: PraFFLState, replies: Replies) -> PraFFLState:
        """Line 10, eq. 14: ω ← 1/|S| Σ ω_k."""
        return replace(state, body=replies.mean("body"), round=state.round + 1)

    def solutions(self, state: PraFFLState) -> Parcels:
        """The body for every client; the rest stays with the clients."""
        return to_everyone(state, body=state.body)

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The body, nothing else."""
        return {"train": {"body": (self.anatomy(setting.layout, len(setting.objectives)).body.size,)}}

    # -- the client half -------------------------------------------------------------------------------------------

    def private_state(self, setting: Setting) -> Message:
        """Line 1: the hypernetwork β, and the body ω_k that it was last trained with."""
        anatomy = self.anatomy(setting.layout, len(setting.objectives))
        network = anatomy.hypernetwork.initial(setting.seed, "hypernetwork").to(setting.initial)
        return {"hypernetwork": network, "body": setting.initial[: anatomy.body.size].clone()}

    def train(self, clients: Clients, message: Message) -> Message:
        """Lines 5 to 9: the body, then the hypernetwork."""
        body = self._train_body(clients, message["body"])
        clients.state["hypernetwork"] = self._train_hypernetwork(clients, body)
        clients.state["body"] = body
        return {"body": body}

    def _train_body(self, clients: Clients, body: Tensor) -> Tensor:
        """Eq. 11: ω descends L_1 for τ_c epochs under the head of an even preference, β(½, ½)."""
        anatomy = self._anatomy(clients)
        if not body.shape[-1] or not self.body_epochs:
            return body
        m = clients.preferences.shape[-1]
        even = torch.full_like(clients.preferences, 1 / m).unsqueeze(1)
        heads = anatomy.heads(anatomy.hypernetwork.layout.unflatten(clients.state["hypernetwork"]), even)
        given = under(FROZEN, {name: tensor[:, 0] for name, tensor in heads.items()})
        loss = Performance(self._problem(clients))
        return clients.minimise(body, anatomy.body, loss, given, epochs=self.body_epochs, purpose="body")

    def _train_hypernetwork(self, clients: Clients, body: Tensor) -> Tensor:
        """Eq. 13: β descends the mean of g over n_λ random tolerances λ for τ_p epochs; ω is frozen."""
        anatomy = self._anatomy(clients)
        if not self.head_epochs:
            return clients.state["hypernetwork"]
        return clients.minimise(
            clients.state["hypernetwork"],
            anatomy.hypernetwork.layout,
            ExpectedG(self, self._problem(clients)),
            under(FROZEN, anatomy.body.unflatten(body)),
            epochs=self.head_epochs,
            purpose="hypernetwork",
        )

    def g(self, losses: Tensor, tolerances: Tensor) -> Tensor:
        """Eq. 6: max_i L_i / λ_i, with z* = 0; or its smooth form, or eq. 5, in which λ weighs the other way."""
        weights = 1 / tolerances
        if self.balanced:
            weights = weights / weights.sum(-1, keepdim=True)
        if self.scalarisation == "linear":
            return scalarise.linear(losses, weights)
        if self.scalarisation == "smooth-tchebycheff":
            return scalarise.smooth_tchebycheff(losses, weights, mu=self.smoothing)
        return scalarise.tchebycheff(losses, weights)

    def tolerances(self, batch: Batch, objectives: int) -> Tensor:
        """Line 8, for a minibatch: λ^(1) … λ^(n_λ), `[n, n_λ, m]`, uniform on the simplex."""
        training = batch.training
        assert training is not None, "a loss is called in training"
        count = self.sampled * objectives
        every = count + -count % 2  # A stream is read from even places on.
        drawn = training.addresses.exponential(f"{training.purpose} preferences", count, training.step * every)
        points = drawn.view(-1, self.sampled, objectives).to(training.mask.dtype)
        return inside(points / points.sum(-1, keepdim=True), self.margin)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """(ω, β_k(λ)) at the client's own preference."""
        body, hypernetwork = self._used_body(clients, message["body"]), clients.state["hypernetwork"]
        return self._anatomy(clients).models(body, hypernetwork, clients.preferences[:, None])[:, 0]

    def model_parts(self, clients: Clients, message: Message) -> Message:
        """(ω, β_k): with these a client makes its model for any preference."""
        return {"body": self._used_body(clients, message["body"]), "hypernetwork": clients.state["hypernetwork"]}

    def _used_body(self, clients: Clients, shared: Tensor) -> Tensor:
        """ω or ω_k, `[n, c]`.

        The last averaging moves the body away from the one that β_k was trained with. Where clients have few rows
        that can undo all they learnt.
        """
        own = clients.state["body"]
        if self.used_body != "best":
            return own if self.used_body == "own" else shared
        if "validation" not in clients.splits:
            return shared
        is_better = self._validated(clients, own) < self._validated(clients, shared)
        return torch.where(is_better.unsqueeze(-1), own, shared)

    def _validated(self, clients: Clients, body: Tensor) -> Tensor:
        """The mean of g over evenly spread preferences on each client's validation rows, `[n]`."""
        problem, anatomy = self._problem(clients), self._anatomy(clients)
        spread = torch.as_tensor(equidistant(COMPARED, clients.preferences.shape[-1])).to(clients.preferences)
        wanted = tolerances(spread, self.margin).expand(len(clients), -1, -1)
        heads = anatomy.heads(anatomy.hypernetwork.layout.unflatten(clients.state["hypernetwork"]), wanted)
        with torch.no_grad():
            losses = problem.losses_each(anatomy.body.unflatten(body), heads, clients.all_rows("validation"))
        return self.g(losses, wanted).mean(-1)

    # -- where body ends and head begins ---------------------------------------------------------------------------

    def anatomy(self, layout: Layout, objectives: int) -> Conditioned:
        """The model's parts: the last `head_layers` layers are the head, whatever the model is."""
        body, head = layout.cut(self.head_layers)
        if head.buffers:
            raise UserError(
                f"the last layers of the network, which {self.name} makes from a preference, keep statistics of rows "
                f"({head.buffers[0]}); take fewer head_layers"
            )
        return Conditioned(body, head, objectives, self.hypernetwork, self.margin)

    def _anatomy(self, clients: Clients) -> Conditioned:
        return self.anatomy(clients.problem.layout, clients.preferences.shape[-1])

    def _problem(self, clients: Clients) -> SupervisedProblem:
        if not isinstance(clients.problem, SupervisedProblem):
            raise UserError(f"praffl needs a problem with losses on rows; '{clients.problem.name}' has none")
        return clients.problem


@dataclass(frozen=True)
class Performance:
    """L_1 as a function of the body."""

    problem: SupervisedProblem

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """Losses `[n]`; `given` holds the head."""
        return self.problem.losses({**parameters, **found_under(FROZEN, given)}, batch)[:, 0]


@dataclass(frozen=True)
class ExpectedG:
    """The mean of g over random preferences, as a function of the hypernetwork."""

    algorithm: PraFFL
    problem: SupervisedProblem

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """Losses `[n]`; `given` holds the body."""
        m = len(self.problem.objectives)
        tolerances = self.algorithm.tolerances(batch, m)
        heads = self.algorithm.anatomy(self.problem.layout, m).heads(parameters, tolerances)
        losses = self.problem.losses_each(found_under(FROZEN, given), heads, batch)
        return self.algorithm.g(losses, tolerances).mean(-1)
