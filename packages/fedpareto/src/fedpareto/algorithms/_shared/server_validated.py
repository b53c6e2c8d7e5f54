"""Servers that measure what they are sent, on rows of their own: what FedVal and FAIR-FATE share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from fedpareto.algorithms._shared.front_search import CHOSEN_ON
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.problem import Judge


@dataclass(frozen=True)
class Judged(FedAvg):
    """FedAvg, whose server knows how good each model is by some of the objectives."""

    criteria: tuple[str, ...] = ()
    """The objectives that count, by name; empty: all of them."""

    def _check(self, setting: Setting) -> None:
        """Check that the server can measure, and what is asked for."""
        self._judge(setting)
        self._places(setting)

    def _judge(self, setting: Setting) -> Judge:
        if setting.judge is None:
            raise UserError(
                f"{self.name}: the server has no rows of its own on this problem; a table gives it some with "
                "server_share=0.1, synthetic with server_rows=500"
            )
        return setting.judge

    def _places(self, setting: Setting) -> list[int]:
        """Places of the criteria among the problem's objectives."""
        names = [objective.name for objective in setting.objectives]
        for name in self.criteria:
            if name not in names:
                raise UserError(f"criteria: '{name}' is no objective of this problem, which has {', '.join(names)}")
        return [names.index(name) for name in self.criteria or names]

    def _merits(self, setting: Setting, models: Tensor) -> Tensor:
        """Score models `[k, d]` on the server's rows by criterion, `[k, c]` in double precision; larger is better."""
        places = self._places(setting)
        values = self._judge(setting)(models)[:, CHOSEN_ON, places].double()
        signs = values.new_tensor([1.0 if setting.objectives[place].maximise else -1.0 for place in places])
        # A value that cannot be measured, such as a rate of no rows, is no merit.
        return (values * signs).nan_to_num(nan=-math.inf)
