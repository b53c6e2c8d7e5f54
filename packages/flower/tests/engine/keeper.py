"""An algorithm with a private tensor beside the model that it sends, and with leaks that can be switched on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg


@dataclass(frozen=True)
class Keeper(FedAvg):
    """FedAvg, and every client also trains a model of its own that it keeps."""

    leaks: tuple[str, ...] = ()
    """"preference", "row" or "private": what a careless author puts at the beginning of each client's reply."""

    def private_state(self, setting):
        return {"kept": setting.initial + 1}  # Not what others start from: it would end as what they send.

    def train(self, clients, message):
        clients.state["kept"] = clients.learn(clients.state["kept"])
        reply = super().train(clients, message)
        model = reply["model"].clone()
        secret = self._leaked(clients)
        model[:, : secret.shape[1]] = secret
        return reply | {"model": model}

    def _leaked(self, clients):
        """Of a node with one client."""
        leak = self.leaks[int(clients.addresses.client[0])] if self.leaks else ""
        if leak == "preference":
            return clients.preferences
        if leak == "row":
            columns = clients.all_rows("train").columns.values()
            return next(column[:, 0] for column in columns if column.ndim == 3 and column.is_floating_point())
        if leak == "private":
            return clients.state["kept"]
        return torch.empty(len(clients), 0)
