"""Common base of the problems of image and text classification."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedpareto.config import plugins
from fedpareto.config.bounds import Count, OpenShare, Positive, ShareBelowOne, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.learner import Learner
from fedpareto.contract.outputs import Output
from fedpareto.contract.problem import Objective, most_frequent
from fedpareto.learners.supervised import Supervised
from fedpareto.problems import partitions
from fedpareto.problems.images_text.datasets import Examples
from fedpareto.problems.images_text.networks import Network, SparseNetwork
from fedpareto.problems.partitions import UNASSIGNED
from fedpareto.problems.sparse import SparseProblem
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch, Rows, Splits

Partition = Literal["dirichlet", "shards", "pathological", "iid", "natural", "ground-track"]


@dataclass(frozen=True)
class ClassificationProblem(SparseProblem):
    """One objective, accuracy; it is multi-objective in that every client's accuracy counts."""

    row_by_row: ClassVar[bool] = True
    rebuilt_by_name: ClassVar[bool] = True
    answer: ClassVar[str] = "class"
    """Name of the answer."""
    class_names: ClassVar[tuple[str, ...]] = ()
    """Names of the classes in the order of their numbers; none: the numbers themselves."""
    outcomes: ClassVar[int]
    """The number of classes."""
    usual_clients: ClassVar[int] = 20
    step_size: ClassVar[float] = 0.005
    batch_size: ClassVar[int] = 50
    is_text: ClassVar[bool] = False
    """True if inputs are numbers of words or characters."""
    in_order: ClassVar[bool] = False
    """True if a client's last rows are its test rows, as neighbouring rows overlap; else random rows are."""

    partition: Partition = "dirichlet"
    """Partition of the rows: by Dirichlet shares of each class; in `shards_per_client` of `shards` shards of the
    rows sorted by class; in `classes_per_client` classes; at random; naturally, by writer, role or doctorate; or by
    ground track: classes live in regions of the Earth, and a satellite sees what it flies over.
    """
    alpha: Positive = 0.5
    """α of the Dirichlet partition; smaller is more uneven."""
    shards: Count = 500
    """Shards of equal size into which the partition `shards` divides the rows."""
    shards_per_client: Count = 5
    """Shards of each client; any left over are not used."""
    classes_per_client: Count = 2
    """Classes of each client in the partition `pathological`; classes left over are not used."""
    track_shell: str = "40/5/1"
    """Walker shell of the partition `ground-track`, satellites/planes/phasing; each satellite is a client."""
    track_altitude: float = 530.0
    """Altitude of that shell, in kilometres."""
    track_inclination: float = 97.5
    """Inclination of that shell, in degrees."""
    track_hours: float = 3.0
    """Hours from the start of a mission on; in a day everybody sees nearly everything."""
    files: Literal["merged", "training", "official"] = "merged"
    """Published rows that are used. `merged`: training and test split together, of which each client holds some out
    for its test (FedFew); `training`: the same without the test split (FedMGDA+); `official`: clients train on the
    training split and are tested on the test split, partitioned in the same shares.
    """
    test_share: OpenShare = 0.25
    """Share of each client's rows that is held out for its test."""
    validation_share: ShareBelowOne = 0.0
    """Share of each client's rows that is held out for validation."""
    rows: Whole = 0
    """Size of a random subset of the rows, for quick runs (of natural clients at least 10 each); 0: all."""
    model: str = ""
    """The network."""
    hidden: tuple[Count, ...] = (64, 32)
    """Widths of the hidden layers of the model `mlp`."""

    @property
    def validates(self) -> bool:
        return self.validation_share > 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model not in self.models:
            raise UserError(f"unknown model of {self.name} '{self.model}'; it has {', '.join(self.models)}")
        if self.test_share + self.validation_share >= 1:
            raise UserError(
                f"test_share and validation_share are {self.test_share:g} and {self.validation_share:g}, which leaves "
                "nothing to train on; take for example 0.25 and 0"
            )
        if self.partition == "ground-track":
            self._tracks()

    # -- the model -------------------------------------------------------------------------------------------------

    @cached_property
    def network(self) -> Network:
        """The network named `model`, with the connections that there are."""
        return SparseNetwork(self._network(), self._connected)

    @abstractmethod
    def _network(self) -> Network:
        """A new network named `model`."""

    @property
    def layout(self) -> Layout:
        return self.network.layout

    def initial(self, seed: int) -> Tensor:
        return self.network.initial(seed)

    def learner(self) -> Learner:
        """SGD with an epoch a round, and with the step and batch size of the paper that uses the data."""
        return Supervised(lr=self.step_size, batch_size=self.batch_size)

    # -- the goal --------------------------------------------------------------------------------------------------

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return (Objective("accuracy", maximise=True, reference=0.0, lowest=0.0, highest=1.0),)

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        logits = self.network(parameters, batch.columns["input"], batch.training)
        labels = batch.columns["label"]
        each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        return batch.mean(each).unsqueeze(-1)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        said = self.network(parameters, batch.columns["input"]).argmax(-1)
        return batch.mean((said == batch.columns["label"]).to(batch.mask.dtype)).unsqueeze(-1)

    def plain_inputs(self, batch: Batch) -> Tensor:
        """Pixels, or numbers; of texts nothing."""
        inputs = batch.columns["input"].flatten(2)
        return inputs[..., :0] if self.is_text else inputs

    def constants(self, rows: Rows) -> np.ndarray:
        return most_frequent(rows, "label")

    def classes(self) -> tuple[str, int]:
        return "label", self.outcomes

    def outputs(self) -> tuple[Output, ...]:
        return (Output(self.answer, self.class_names or tuple(map(str, range(self.outcomes)))),)

    def answers(self, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return self.network(parameters, inputs).unsqueeze(2)

    # -- data ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _read(self) -> Examples:
        """All published rows."""

    def default_clients(self) -> int:
        """Number of satellites or shards, where there are such; else the number in the paper that uses the data."""
        if self.partition == "ground-track":
            return int(self._tracks().walker.satellites)
        return self.shards // self.shards_per_client if self.partition == "shards" else self.usual_clients

    def data(self, clients: int, seed: int) -> Splits:
        examples = self._read()
        owner = self._owners(examples, clients, seed)
        part = self._parts(examples, owner, seed)
        columns = {"input": torch.from_numpy(examples.inputs), "label": torch.from_numpy(examples.labels)}
        splits = {}
        for index, name in enumerate(self._shares):
            order, counts = partitions.client_by_client(np.where(part == index, owner, UNASSIGNED), clients)
            if not counts.all():
                raise UserError(
                    f"client {counts.argmin()} has no row in '{name}'; take fewer clients, more rows or a larger alpha"
                )
            taken = {key: table.index_select(0, torch.as_tensor(order)) for key, table in columns.items()}
            splits[name] = Rows.end_to_end(taken, counts)
        return splits

    @property
    def _shares(self) -> dict[str, float]:
        """Share of each split of a client's rows; of its training rows, where the test split is the published one."""
        own = self.files != "official"
        shares = {"train": 1 - self.validation_share - (self.test_share if own else 0)}
        if self.validation_share:
            shares["validation"] = self.validation_share
        return shares | {"test": self.test_share if own else 0.0}

    def _parts(self, examples: Examples, owner: np.ndarray, seed: int) -> np.ndarray:
        """The index of each row's split among `_shares`, `[rows]`."""
        names, shares = list(self._shares), list(self._shares.values())
        split_here = np.flatnonzero((owner != UNASSIGNED) & ~(examples.tested & (self.files == "official")))
        part = np.full(len(owner), names.index("test"))
        if self.files == "official":
            names, shares = names[:-1], shares[:-1]
        if self.in_order:
            part[split_here] = _in_order(owner[split_here], shares)
        else:
            alike = np.zeros(len(split_here), dtype=np.int64)
            part[split_here] = partitions.parts(owner[split_here], alike, shares, seed)
        return part

    def _owners(self, examples: Examples, clients: int, seed: int) -> np.ndarray:
        """Each row's client, `[rows]`; UNASSIGNED for rows that are not used."""
        owner = np.full(len(examples.labels), UNASSIGNED, dtype=np.int64)
        stream = rng.generator(rng.Address(seed), "deal")
        used = np.flatnonzero(self._used(examples))
        if self.partition == "natural":
            found = self._natural(examples, clients, stream)
            owned = used[found[used] != UNASSIGNED]
            chosen = self._of_each(owned, 2 * found[owned] + examples.tested[owned], stream)
            owner[chosen] = found[chosen]
            return owner
        chosen = self._chosen(used, stream)
        assigned = chosen[~examples.tested[chosen]] if self.files == "official" else chosen
        owner[assigned] = self._partitioned(examples.labels[assigned], clients, stream)
        if self.files == "official":
            tested = chosen[examples.tested[chosen]]
            owner[tested] = partitions.alike(
                owner[assigned], examples.labels[assigned], examples.labels[tested], stream
            )
        return owner

    def _used(self, examples: Examples) -> np.ndarray:
        """True for published rows that are used, `[rows]`."""
        if self.files == "official" and not examples.tested.any():
            raise UserError(f"files is 'official', but {self.name} has no published test split; take files=merged")
        return ~examples.tested if self.files == "training" else np.ones(len(examples.tested), dtype=bool)

    def _chosen(self, rows: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        """The rows themselves, or a random choice of them, in order."""
        if not self.rows or self.rows >= len(rows):
            return rows
        return np.sort(stream.choice(rows, size=self.rows, replace=False))

    def _of_each(self, rows: np.ndarray, cells: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        """`_chosen`, but stratified by cell, with at least FEWEST rows each, so that every client has some."""
        if not self.rows or self.rows >= len(rows):
            return rows
        chosen = []
        for cell in np.unique(cells):
            here = rows[cells == cell]
            count = min(len(here), max(partitions.FEWEST, round(self.rows * len(here) / len(rows))))
            chosen.append(stream.choice(here, size=count, replace=False))
        return np.sort(np.concatenate(chosen))

    def _partitioned(self, labels: np.ndarray, clients: int, stream: np.random.Generator) -> np.ndarray:
        if len(labels) < len(self._shares) * clients:
            raise UserError(
                f"{clients} clients need at least {len(self._shares) * clients} rows; there are {len(labels)}"
            )
        if self.partition == "ground-track":
            return partitions.by_sight(labels, self._tracks().seen(clients, self.outcomes, stream), stream)
        if self.partition == "shards":
            return partitions.shards(labels, clients, self.shards, self.shards_per_client, stream)
        if self.partition == "pathological":
            return partitions.few_classes(labels, clients, self.classes_per_client, stream)
        if self.partition == "iid":
            return partitions.at_random(len(labels), clients, stream)
        return partitions.dirichlet(labels, clients, self.alpha, stream)

    def _tracks(self) -> Any:
        """The ground tracks of satellites: how long each client sees the region of each class."""
        tracks = plugins.need("fedpareto.tracks", "ground", "partition 'ground-track'")
        return tracks(self.track_shell, self.track_altitude, self.track_inclination, self.track_hours)

    def _natural(self, examples: Examples, clients: int, stream: np.random.Generator) -> np.ndarray:
        """The client that each row comes from; of more natural clients than wanted, a random choice."""
        if examples.origins is None:
            raise UserError(f"partition is 'natural', but the rows of {self.name} have no natural clients")
        origins = np.unique(examples.origins[self._used(examples)])
        if self.files == "official":
            # Natural clients in one of the two splits only could not be trained, or not be tested.
            in_part = [examples.origins[examples.tested == tested] for tested in (False, True)]
            origins = np.intersect1d(*in_part)
        if clients > len(origins):
            instead = "; none is in both published splits, so try files=merged" if not len(origins) else ""
            raise UserError(
                f"{self.name} has {len(origins)} natural clients with files={self.files}, not {clients}{instead}"
            )
        chosen = np.sort(stream.choice(origins, size=clients, replace=False))
        place = np.minimum(np.searchsorted(chosen, examples.origins), clients - 1)
        return np.where(chosen[place] == examples.origins, place, UNASSIGNED)


def _in_order(owner: np.ndarray, shares: list[float]) -> np.ndarray:
    """Each client's rows in order: the first ones to the first split, and so on; `[rows]`."""
    part = np.empty(len(owner), dtype=np.int64)
    for client in np.unique(owner):
        rows = np.flatnonzero(owner == client)
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for index, piece in enumerate(np.split(rows, cuts)):
            part[piece] = index
    return part
