"""Modules that people bring, and a problem on which any of them can be trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedpareto.contract.problem import Objective, SupervisedProblem
from fedpareto.learners.supervised import Supervised
from fedpareto.networks.module import StackedModule
from fedpareto.networks.resnet import ResNet18
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Batch, Rows

WORDS, LENGTH, CLASSES = 11, 6, 3


class Transformer(nn.Module):
    """Two layers with a causal mask, positions in a buffer, and dropout everywhere."""

    def __init__(self, dropout=0.1, batch_first=True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=batch_first)
        self.words = nn.Embedding(WORDS, 8, padding_idx=0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.output = nn.Linear(8, CLASSES)
        self.register_buffer("positions", torch.arange(LENGTH * 8.0).view(1, LENGTH, 8).sin())
        self.register_buffer("ahead", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))
        self.batch_first = batch_first

    def forward(self, texts):
        values = self.words(texts) + self.positions
        if self.batch_first:
            return self.output(self.encoder(values, mask=self.ahead, is_causal=True)[:, -1])
        return self.output(self.encoder(values.transpose(0, 1), mask=self.ahead, is_causal=True)[-1])


class Recurrent(nn.Module):
    """Words through any of torch's recurrent layers, read off its outputs and its last state."""

    def __init__(self, kind=nn.LSTM, **options):
        super().__init__()
        self.words = nn.Embedding(WORDS, 4)
        self.memory = kind(4, 5, 2, **{"batch_first": True} | options)
        self.output = nn.Linear(10 if options.get("bidirectional") else 5, CLASSES)

    def forward(self, texts):
        words = self.words(texts)
        steps, end = self.memory(words if self.memory.batch_first else words.transpose(0, 1))
        last = steps[:, -1] if self.memory.batch_first else steps[-1]
        state = end[0] + end[1] if isinstance(end, tuple) else end
        return self.output(last) + state.sum((0, 2)).unsqueeze(-1)


def dropping():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.3), nn.Flatten(), nn.Linear(36, 8), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(8, CLASSES),
    )  # fmt: skip


def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, CLASSES))


def normalised():
    """Each kind of normalisation in one sequence."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()), nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4), nn.Flatten(), nn.Linear(256, 8), nn.BatchNorm1d(8), nn.LayerNorm(8),
        nn.AlphaDropout(0.2), nn.Linear(8, CLASSES),
    )  # fmt: skip


MODULES = {
    "resnet": lambda: ResNet18(classes=CLASSES, width=2),
    "transformer": Transformer,
    "transformer with steps first": lambda: Transformer(dropout=0.0, batch_first=False),
    "lstm": Recurrent,
    "lstm in both directions": lambda: Recurrent(bidirectional=True, dropout=0.4, batch_first=False),
    "gru": lambda: Recurrent(nn.GRU, dropout=0.25),
    "rnn": lambda: Recurrent(nn.RNN, nonlinearity="relu", bias=False),
    "dropout": dropping,
    "small": small,
    "normalisation": normalised,
}
ON_TEXTS = ("transformer", "lstm", "gru", "rnn")


def inputs_of(name, *rows, generator=None):
    """Random texts or images of 8 × 8, `[*rows, ...]`."""
    if name.startswith(ON_TEXTS):
        return torch.randint(0, WORDS, (*rows, LENGTH), generator=generator)
    return torch.randn(*rows, 3, 8, 8, generator=generator)


@dataclass(frozen=True)
class AnyNetwork(SupervisedProblem):
    """Unequal clients and any of these modules: to hit a class, and to say little of it."""

    name: ClassVar[str] = "any-network"
    module: str = "resnet"
    fewest: int = 6

    @cached_property
    def network(self):
        with torch.random.fork_rng():
            return StackedModule(MODULES[self.module]())

    @property
    def objectives(self):
        return Objective("error"), Objective("size", reference=10.0)

    @property
    def layout(self):
        return self.network.layout

    def initial(self, seed):
        return self.network.drawn(seed)

    def learner(self):
        return Supervised(lr=0.01, batch_size=8)

    def data(self, clients, seed):
        tables = []
        for client in range(clients):
            generator = rng.torch_generator(rng.Address(seed, client), "rows")
            inputs = inputs_of(self.module, self.fewest + 2 * client, generator=generator)
            tables.append({"input": inputs, "label": (inputs.flatten(1).sum(1) * 7).long() % CLASSES})
        return {"train": Rows.of(tables)}

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self._losses(self.network(parameters, batch.columns["input"], batch.training), batch)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self._losses(self.network(parameters, batch.columns["input"]), batch)

    def _losses(self, logits, batch):
        entropy = F.cross_entropy(logits.flatten(0, 1), batch.columns["label"].flatten(), reduction="none")
        both = entropy.view(batch.mask.shape), logits.square().mean(-1)
        return torch.stack([batch.mean(each) for each in both], dim=1)
