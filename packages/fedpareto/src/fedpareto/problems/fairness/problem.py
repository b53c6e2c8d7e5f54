"""Accuracy against group fairness on tabular data: what all such problems have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import Count, NotNegative, Positive, ShareBelowOne
from fedpareto.config.errors import UserError
from fedpareto.config.parameters import earlier
from fedpareto.contract.groups import Comparison
from fedpareto.contract.learner import Learner
from fedpareto.contract.outputs import Output
from fedpareto.contract.problem import Objective
from fedpareto.inputs.table import InputSchema
from fedpareto.learners.supervised import Supervised
from fedpareto.networks.mlp import MLP
from fedpareto.problems import partitions
from fedpareto.problems.fairness import goals
from fedpareto.problems.fairness.classifier import FairClassifier
from fedpareto.problems.fairness.encoding import Encoder
from fedpareto.problems.fairness.gaps import CONDITIONS, members
from fedpareto.problems.fairness.goals import Criteria, Goal, listed
from fedpareto.problems.fairness.partitions import Partition, silos
from fedpareto.problems.fairness.tables import UNKNOWN, Groups, LabelledTable
from fedpareto.problems.partitions import UNASSIGNED
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Batch, Rows, Splits, tested_on_all

PARTS = ("train", "validation", "test")
SERVER = -1
"""In place of a split: a row that the server holds."""
MOST_CELLS = 40_000_000
"""Rows times inputs up to which a table is kept as the classifier reads it, one-hot inputs and all: 160 MB."""
ROWS_AT_ONCE = 65_536
"""Rows whose inputs are expanded at a time where a table is larger."""
FEWER_CLIENTS = "take fewer clients, partition=stratified or a larger alpha"
SMALLEST_START = 0.01
"""A loss that begins below this is divided by this instead: a gap of 0 cannot normalise."""


@dataclass(frozen=True)
class Fairness(FairClassifier):
    """Accuracy against group fairness on tabular data (chapter 5 of the thesis)."""

    sensitive: tuple[str, ...] = ()
    """The sensitive attributes; a notion of fairness counts for each of them."""
    goals: tuple[str, ...] = ("accuracy", "demographic-parity")
    """2 to 6 of accuracy, demographic-parity, equal-opportunity, equalised-odds; ":race" at the end of one means that
    attribute only."""
    partition: str = "random"
    """Partition of the rows: random, stratified (over label and sensitive attributes), dirichlet-label,
    dirichlet-group (by the first sensitive attribute), column:NAME (natural silos), shares:0.5,0.3,0.2, or by a rule,
    with other shares for the rows that fulfil it and for those that do not: rule:workclass=Private:0.8,0.2/0.2,0.8."""
    alpha: Positive = 0.5
    """α of the Dirichlet partitions; smaller is more uneven."""
    split: tuple[float, ...] = (0.6, 0.2, 0.2)
    """Shares of each client's rows for training, validation and test, alike for each label and group."""
    rounding: Literal["table", "client"] = earlier("client", now="table")
    """Rounding of shares to whole rows: so that validation and test rows of all clients have the base rates of the
    table; or in each client, label and group by itself, so that rare ones of small clients weigh more, as in older
    runs."""
    test: Literal["common", "own"] = "common"
    """Test rows of a model: those of all clients, with each client's own as a second evaluation (own-test); or its
    client's own only. The nodes of a deployment have only their own."""
    server_share: ShareBelowOne = 0.0
    """Share of all rows, alike for each label and group, that the server holds and no client, for algorithms that
    evaluate models at the server."""
    relaxation: Literal["tanh", "tanh-halved", "tanh-masked", "covariance"] = "tanh"
    """Relaxation that turns a gap into a loss: tanh without the halving of eq. 5.5, as printed there, as in the code of
    Padh et al., or PraFFL's covariance term."""
    c: NotNegative = 0.0
    """Steepness of the tanh; 0: 1.5 for demographic parity, 2.5 for the others."""
    regularisation: NotNegative = 0.1
    """Share of cross entropy added to a fairness loss so that it can start to learn (eq. A.1 of the thesis)."""
    normalise: bool = False
    """Divide each loss by its value for the initial model on the client's own training rows (A.3.5). An
    untrained model is fair, so this favours fairness."""
    unmeasured: Literal["refuse", "worst"] = "refuse"
    """Treatment of a client that lacks a group, where a goal cannot be measured: refuse to begin, or report the
    worst value, 0."""
    hidden: tuple[Count, ...] = (64, 32)
    """Widths of the classifier's hidden layers."""
    drop: tuple[str, ...] = ()
    """Columns that the classifier does not see."""

    def __post_init__(self) -> None:
        super().__post_init__()
        Partition.parse(self.partition)
        shares = self.split
        if len(shares) != 3 or min(shares[0], shares[2]) <= 0 or shares[1] < 0 or abs(sum(shares) - 1) > 1e-6:
            raise UserError(
                f"split is {', '.join(f'{share:g}' for share in shares)}; it is the shares of training, validation "
                "(may be 0) and test, which add up to 1, such as 0.6,0.2,0.2"
            )
        _ = self._goals

    @property
    def validates(self) -> bool:
        return self.split[1] > 0

    # -- the data --------------------------------------------------------------------------------------------------

    @abstractmethod
    def _read(self) -> LabelledTable:
        """The whole table."""

    @abstractmethod
    def _groups(self, attribute: str) -> Groups:
        """The group of each row by a sensitive attribute."""

    @cached_property
    def _table(self) -> LabelledTable:
        return self._read()

    @cached_property
    def _encoder(self) -> Encoder:
        table = self._table
        for name in self.dropped:
            table.column(name)
        return Encoder.of(table.frame, {*self.dropped, *table.not_features}, table.source)

    @property
    def dropped(self) -> list[str]:
        return self._listed(self.drop)

    @cached_property
    def all_groups(self) -> dict[str, Groups]:
        return {attribute: self._groups(attribute) for attribute in self.attributes}

    def _encoding(self, training: np.ndarray) -> Callable[[np.ndarray], dict[str, Tensor]]:
        """Gives some rows, by index, as the classifier reads them, estimated on `training` rows.

        That is `features` `[k, inputs]`; of a large table the numbers only, and `codes`, see `Fitted.compact`.
        """
        fitted = self._encoder.fitted(training)
        if len(training) * self._encoder.width <= MOST_CELLS:
            return lambda rows: {"features": torch.from_numpy(fitted.encode(rows))}

        def in_little_room(rows: np.ndarray) -> dict[str, Tensor]:
            numbers, codes = fitted.compact(rows)
            return {"features": torch.from_numpy(numbers), "codes": torch.from_numpy(codes)}

        return in_little_room

    def _inputs(self) -> int:
        return self._encoder.width

    # -- goals -----------------------------------------------------------------------------------------------------

    @cached_property
    def _goals(self) -> tuple[Goal, ...]:
        return goals.parse(listed(self.goals), self._listed(self.sensitive))

    @property
    def attributes(self) -> list[str]:
        """Sensitive attributes in use, the user's first one first."""
        named = [goal.attribute for goal in self._goals if goal.is_fairness]
        return list(dict.fromkeys([*self._listed(self.sensitive), *named]))

    def _listed(self, columns: tuple[str, ...]) -> list[str]:
        return listed(columns)

    @cached_property
    def _criteria(self) -> Criteria:
        counts = {attribute: len(groups.names) for attribute, groups in self.all_groups.items()}
        return Criteria(self._goals, counts, self.relaxation, self.c, self.regularisation)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Accuracy and 1 − gap, with the reference point 0 of the thesis's chapter 5."""
        return Criteria(self._goals).objectives()

    @property
    def _compared(self) -> Goal:
        """The first goal that compares groups; there always is one."""
        return next(goal for goal in self._goals if goal.is_fairness)

    @property
    def comparison(self) -> Comparison:
        return Comparison(self._group_count(self._compared.attribute), CONDITIONS[self._compared.kind])

    def _group_count(self, attribute: str) -> int:
        return len(self.all_groups[attribute].names)

    def groups(self, batch: Batch) -> Tensor:
        return batch.columns[self._compared.column]

    # -- the model -------------------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> MLP:
        return MLP(self._inputs(), self.hidden, 1, sparsity=self._connected)

    def learner(self) -> Learner:
        """Batch and optimiser are not given in the thesis; steps and step size are among those it tried (A.10)."""
        return Supervised(lr=0.01, optimiser="adam", batch_size=128, steps=25)

    def _scaled(self, losses: Tensor, batch: Batch) -> Tensor:
        if not self.normalise:
            return losses
        # The same in every real row of a client, so the largest is it, however much padding there is.
        return losses * (batch.columns["scale"] * batch.mask.unsqueeze(-1)).amax(-2)

    def logits(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The classifiers' logits, `[n, b]`."""
        n, b = batch.mask.shape[-2:]
        if torch.is_grad_enabled() or "codes" not in batch.columns or n * b <= ROWS_AT_ONCE:
            return self.model(parameters, self._features(batch.columns)).squeeze(-1)
        step = max(ROWS_AT_ONCE // n, 1)
        pieces = [
            {name: batch.columns[name][:, i : i + step] for name in ("features", "codes")} for i in range(0, b, step)
        ]
        return torch.cat([self.model(parameters, self._features(piece)).squeeze(-1) for piece in pieces], dim=-1)

    def _features(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Inputs of the classifiers, `[n, b, inputs]`, with the codes of texts expanded."""
        if "codes" not in columns:
            return columns["features"]
        numbers, width = columns["features"], self._inputs()
        written = numbers.new_zeros(*numbers.shape[:-1], width + 1)
        written[..., : numbers.shape[-1]] = numbers
        return written.scatter_(-1, columns["codes"].long(), 1.0)[..., :width]

    # -- partitioning ----------------------------------------------------------------------------------------------

    def default_clients(self) -> int:
        """Number of silos or shares, if there are such; else 10."""
        partition = Partition.parse(self.partition)
        if partition.kind == "column":
            return int(silos(self._table, partition.column).max()) + 1
        return len(partition.shares) or super().default_clients()

    def client_names(self, clients: int) -> list[str]:
        """The values of the column by which rows are partitioned, where they are."""
        partition = Partition.parse(self.partition)
        if partition.kind != "column":
            return []
        owner, column = self._owners(clients, 0), self._table.column(partition.column)
        each = [column[owner == client].value_counts(dropna=False) for client in range(clients)]
        return [", ".join(map(str, counts[counts > 0].index)) for counts in each]

    def input_schema(self, clients: int, seed: int) -> InputSchema:
        """Encoding as estimated on the training rows of this seed."""
        return self._encoder.fitted(self._partitioned(clients, seed)[1] == 0).input_schema()

    def outputs(self) -> tuple[Output, ...]:
        return (self._table.output,)

    def _partitioned(self, clients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Each row's client and its split of that client's rows, `[rows]` each; SERVER for a row of the server."""
        owner, part = self._owners(clients, seed), np.full(len(self._classes), SERVER)
        mine = ~self._is_servers(seed)
        shares = [share for share in self.split if share]
        parts = partitions.parts if self.rounding == "table" else partitions.parts_of_each
        part[mine] = parts(owner[mine], self._classes[mine], shares, seed, self._table.label[mine].astype(np.int64))
        return owner, part

    def _is_servers(self, seed: int) -> np.ndarray:
        """True for rows that the server holds, `[rows]`."""
        if not self.server_share:
            return np.zeros(len(self._classes), dtype=bool)
        shares = np.tile([1 - self.server_share, self.server_share], (self._classes.max() + 1, 1))
        holder = partitions.by_class(self._classes, shares, rng.generator(rng.Address(seed), "server rows"))
        return np.asarray(holder == 1)

    def held_by_server(self, clients: int, seed: int) -> Rows | None:
        """Encoded like those of the clients, with what is estimated on their training rows."""
        if not self.server_share:
            return None
        place = np.flatnonzero((part := self._partitioned(clients, seed)[1]) == SERVER)
        if not len(place):
            raise UserError(
                f"server_share is {self.server_share:g}: of {len(part):,} rows the server has none; take more"
            )
        rows = Rows.end_to_end({**self._encoding(part == 0)(place), **self._facts(place)}, [len(place)])
        self._check_measurable("server_share", rows, "the server", "give it a larger server_share")
        return rows

    def data(self, clients: int, seed: int) -> Splits:
        """Rows partitioned over the clients, and each client's rows into splits, stratified by label and group."""
        owner, part = self._partitioned(clients, seed)
        # Each split is encoded separately: the whole table at once would be needed twice.
        encode = self._encoding(part == 0)
        splits = {}
        for index, name in enumerate(self._parts):
            order, counts = partitions.client_by_client(np.where(part == index, owner, UNASSIGNED), clients)
            splits[name] = Rows.end_to_end({**encode(order), **self._facts(order)}, counts)
            # The rows of all clients are checked once, as one client's.
            is_common = name == "test" and self.test == "common"
            checked = Rows.end_to_end(splits[name].columns, [len(order)]) if is_common else splits[name]
            self._check_measurable(name, checked, "the test set of all clients" if is_common else "")
        found = self._with_scales(splits, seed) if self.normalise else splits
        return tested_on_all(found) if self.test == "common" else found

    def held_out(self, clients: int, seed: int) -> Rows:
        """Label and groups of each client's own test rows, without anything that a model reads."""
        owner, part = self._partitioned(clients, seed)
        own = np.where(part == len(self._parts) - 1, owner, UNASSIGNED)
        order, counts = partitions.client_by_client(own, clients)
        return Rows.end_to_end(self._facts(order), counts)

    def examples(self, clients: int, seed: int, client: int) -> list[dict[str, Any]]:
        owner, part = self._partitioned(clients, seed)
        mine = (owner == client) & (part == len(self._parts) - 1)
        return [{str(name): value for name, value in row.items()} for row in self._table.frame[mine].to_dict("records")]

    @property
    def _parts(self) -> list[str]:
        return [name for name, share in zip(PARTS, self.split, strict=True) if share]

    def _facts(self, rows: np.ndarray) -> dict[str, Tensor]:
        facts = {"label": torch.from_numpy(self._table.label[rows])}
        for attribute, groups in self.all_groups.items():
            facts[goals.sensitive_column(attribute)] = torch.from_numpy(groups.codes[rows].astype(np.float32))
        return facts

    @cached_property
    def _classes(self) -> np.ndarray:
        """Each row's pair of label and groups (all attributes) as one number, `[rows]`."""
        pair = self._table.label.astype(np.int64)
        for groups in self.all_groups.values():
            pair = pair * (len(groups.names) + 1) + (groups.codes - UNKNOWN)
        return np.unique(pair, return_inverse=True)[1].reshape(-1)

    def _owners(self, clients: int, seed: int) -> np.ndarray:
        """Each row's client, `[rows]`."""
        smallest, rows = sum(share > 0 for share in self.split), len(self._table.label)
        if rows < smallest * clients:
            raise UserError(f"{clients} clients need at least {smallest * clients:,} rows; there are {rows:,}")
        first = next(iter(self.all_groups.values()))
        stream = rng.generator(rng.Address(seed), "deal")
        partition = Partition.parse(self.partition)
        return partition.owners(self._table, self._classes, first.codes, clients, self.alpha, stream)

    def _check_measurable(self, part: str, rows: Rows, whose: str = "", advice: str = FEWER_CLIENTS) -> None:
        """Raises UserError if a client (or `whose` rows they are) has none, or none to measure some goal on."""
        if not rows.counts.all():
            raise UserError(f"client {rows.counts.argmin()} has no row in '{part}'; take fewer clients")
        for client, batch in _one_by_one(rows) if self.unmeasured == "refuse" else ():
            known = self._criteria.known(batch)[0].tolist()
            if not all(known):
                goal = self._goals[known.index(False)]
                who = whose or f"client {client}"
                raise UserError(
                    f"{who} has no row of {self._lacking(goal, batch)} in '{part}', so {goal.name} cannot be "
                    f"measured there; {advice}, or have it reported as 0: unmeasured=worst"
                )

    def _lacking(self, goal: Goal, batch: Batch) -> str:
        names = self.all_groups[goal.attribute].names
        for label in CONDITIONS[goal.kind]:
            counts = members(batch, label, goal.column, len(names)).sum(-1)[0].tolist()
            if 0 in counts:
                return names[counts.index(0)] + ("" if label is None else f" with label {label}")
        raise AssertionError("a goal is unknown only where a group has no row")

    def _with_scales(self, splits: dict[str, Rows], seed: int) -> Splits:
        """With a column of the training rows, `[rows, m]`: 1 / the initial model's losses on the client's own."""
        parameters = self.layout.unflatten(self.initial(seed).unsqueeze(0))
        with torch.no_grad():
            starts = torch.cat(
                [
                    self._criteria.losses(self.logits(parameters, batch), batch)
                    for _, batch in _one_by_one(splits["train"])
                ]
            )
        scales = 1 / starts.clamp_min(SMALLEST_START)
        rows = splits["train"]
        column = scales.repeat_interleave(torch.as_tensor(rows.counts), dim=0)
        return {**splits, "train": Rows.end_to_end({**rows.columns, "scale": column}, rows.counts)}


def _one_by_one(rows: Rows) -> Iterator[tuple[int, Batch]]:
    for client in range(len(rows.counts)):
        columns = {name: column.unsqueeze(0) for name, column in rows.of_client(client).items()}
        yield client, Batch(columns, torch.ones_like(columns["label"]))
