"""Deep-sea treasure as a tensor program: a submarine dives for one of ten treasures, the richer the farther.

Vamplew et al. 2011, with the map of Yang et al. 2019; equal to mo-gymnasium's deep-sea-treasure-v0 step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.environment import Actions, Environment, TensorEnvironment
from fedpareto.contract.messages import Message
from fedpareto.contract.problem import Objective
from fedpareto.learners.dqn import DQN
from fedpareto.problems.morl.problem import MORLProblem

SIDE = 11
ROCK = -10.0
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Up, down, left, right, as (row, column)."""
DEPTHS = (1, 2, 3, 4, 4, 4, 7, 7, 9, 10)
"""The row of each column's treasure. Rock lies below it; the last column is water."""
TREASURES = {
    "convex": (0.7, 8.2, 11.5, 14.0, 15.1, 16.1, 19.6, 20.3, 22.4, 23.7),
    "concave": (1.0, 2.0, 3.0, 5.0, 8.0, 16.0, 24.0, 50.0, 74.0, 124.0),
}


@dataclass(frozen=True)
class Sea(TensorEnvironment):
    """The state is the submarine's cell, counted row by row."""

    treasures: tuple[float, ...] = TREASURES["convex"]

    observation_size: int = 2
    actions: Actions = Actions(count=len(MOVES))
    objectives: int = 2
    horizon: int = 100

    @cached_property
    def map(self) -> np.ndarray:
        """The treasure in each cell, `[11, 11]`: 0 is water."""
        sea = np.zeros((SIDE, SIDE))
        for column, (depth, treasure) in enumerate(zip(DEPTHS, self.treasures, strict=True)):
            sea[depth, column] = treasure
            sea[depth + 1 :, column] = ROCK
        return sea

    @cached_property
    def _leads_to(self) -> np.ndarray:
        """The cell that each move leads to from each cell, `[121, 4]`; walls and rocks block a move."""
        table = np.empty((SIDE * SIDE, len(MOVES)), dtype=np.int64)
        for field in range(SIDE * SIDE):
            for action, (down, right) in enumerate(MOVES):
                row, column = field // SIDE + down, field % SIDE + right
                is_open = 0 <= row < SIDE and 0 <= column < SIDE and self.map[row, column] != ROCK
                table[field, action] = row * SIDE + column if is_open else field
        return table

    @cached_property
    def _tables(self) -> dict[torch.device, tuple[Tensor, Tensor, Tensor]]:
        """Tables by device: where moves lead, what each cell holds, and the index of each cell of water."""
        return {}

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        if device not in self._tables:
            holds = self.map.reshape(-1)
            number = np.where(holds == 0, np.cumsum(holds == 0) - 1, 0)
            arrays = self._leads_to, np.where(holds == ROCK, 0, holds).astype(np.float32), number
            leads_to, treasure, numbers = (torch.as_tensor(array, device=device) for array in arrays)
            self._tables[device] = leads_to, treasure, numbers
        return self._tables[device]

    def every_observation(self) -> Tensor:
        """Row and column of each cell of water, `[62, 2]`."""
        return torch.as_tensor(np.argwhere(self.map == 0), dtype=torch.float32)

    def number(self, observation: Tensor) -> Tensor:
        row, column = observation.long().unbind(-1)
        return self._on(observation.device)[2][row * SIDE + column]

    def start(self, n: int, device: torch.device) -> Message:
        return {"field": torch.zeros(n, dtype=torch.int64, device=device)}

    def observe(self, state: Message) -> Tensor:
        field = state["field"]
        return torch.stack([field // SIDE, field % SIDE], dim=1).float()

    def advance(self, state: Message, action: Tensor) -> tuple[Message, Tensor, Tensor]:
        leads_to, holds, _ = self._on(action.device)
        field = leads_to[state["field"], action]
        treasure = holds[field]
        return {"field": field}, torch.stack([treasure, torch.full_like(treasure, -1)], dim=1), treasure > 0


@dataclass(frozen=True)
class DeepSeaTreasure(MORLProblem):
    """Two objectives, treasure and time, with ten known trade-offs; the thesis's smallest environment."""

    name: ClassVar[str] = "deep-sea-treasure"

    map: Literal["convex", "concave"] = "convex"
    """Map of Yang et al. 2019 (as in mo-gymnasium and the thesis), or of Vamplew et al. 2011."""

    @cached_property
    def environment(self) -> Environment:
        return Sea(TREASURES[self.map])

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The reference point is that of the thesis's tables 4.3 ff.; a submarine that gets stuck has the return (0,
        −100).
        """
        return Objective("treasure", maximise=True, reference=-1.0), Objective("time", maximise=True, reference=-101.0)

    def known_front(self) -> np.ndarray:
        """Every treasure by the shortest path, undiscounted."""
        steps = [depth + column for column, depth in enumerate(DEPTHS)]
        return np.array([[treasure, -step] for treasure, step in zip(TREASURES[self.map], steps, strict=True)])

    def learner(self) -> DQN:
        """Table A.6 of the thesis; 15,000 steps in all, of which exploration takes a fifth."""
        return DQN(
            steps=500,
            lr=0.004,
            batch_size=128,
            buffer_size=10_000,
            learning_starts=1_000,
            gamma=self.discount,
            target_update_interval=600,
            train_freq=16,
            gradient_steps=8,
            exploration_steps=3_000,
            exploration_final=0.07,
        )
