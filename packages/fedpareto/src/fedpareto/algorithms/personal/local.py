"""No communication: every client trains alone. The baseline that a federation has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from fedpareto.contract.algorithm import Algorithm, Needs, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks


@dataclass(frozen=True)
class Local(Algorithm[State]):
    """Local training only ("no comm." in the thesis): models stay with their clients, nothing is sent."""

    name: ClassVar[str] = "local"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, no federation", "arbitrary"
    )
    personalised: ClassVar[bool] = True
    needs: ClassVar[Needs] = "weighted sum"  # The server reads nothing.

    def begin(self, setting: Setting) -> State:
        """The server only counts rounds."""
        return State(setting)

    def private_state(self, setting: Setting) -> Message:
        """Each client keeps its model."""
        return {"model": setting.initial}

    def ask(self, state: State) -> list[Tasks]:
        """Empty tasks: clients train."""
        return to_participants(state)

    def train(self, clients: Clients, message: Message) -> Message:
        """Trains the client's own model further."""
        clients.state["model"] = clients.learn(clients.state["model"])
        return {}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The model that the client kept."""
        return clients.state["model"]

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """An empty reply."""
        return {"train": {}}

    def tell(self, state: State, replies: Replies) -> State:
        """One more round is over."""
        return replace(state, round=state.round + 1)

    def solutions(self, state: State) -> Parcels:
        return to_everyone(state)
