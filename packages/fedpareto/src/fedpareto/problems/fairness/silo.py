"""One party's own table in a federation: the schema is shared, the rows stay here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract import consent
from fedpareto.contract.outputs import Output
from fedpareto.inputs.table import InputSchema
from fedpareto.problems.fairness import tables
from fedpareto.problems.fairness.goals import listed
from fedpareto.problems.fairness.problem import Fairness
from fedpareto.problems.fairness.schema import TableSchema
from fedpareto.problems.fairness.sources import Source
from fedpareto.tensors.rows import Rows


@dataclass(frozen=True)
class Silo(Fairness):
    """A party's table under a schema that all parties share: what `fedpareto server` and `fedpareto node` train on.

    The server knows the schema and no rows: model and objectives follow from it. A node has a file beside it. All
    parties encode their rows alike, with the schema's statistics.
    """

    name: ClassVar[str] = "silo"

    schema: str = ""
    """The schema's file, as `fedpareto server init` writes it."""
    file: str = ""
    """The party's table: .csv, .parquet or a folder of .parquet files; empty at the server."""
    sql: str = ""
    """Instead of a file, the URL of the party's database, or env:NAME, the environment variable that holds it."""
    query: str = ""
    """The database query."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._source
        if self.server_share:
            raise UserError("server_share: the rows of a silo stay with their party; its server has none")
        if listed(self.drop):
            raise UserError("drop: a silo's columns are the schema's; leave some out with fedpareto server init --drop")
        for attribute in self.attributes if self.schema else ():
            self.table_schema.attribute(attribute)

    @property
    def _source(self) -> Source:
        return Source(self.file, self.sql, self.query)

    @cached_property
    def table_schema(self) -> TableSchema:
        if not self.schema:
            raise UserError("the problem 'silo' needs schema, the file that fedpareto server init writes")
        consent.need_file(self.schema)
        return TableSchema.read(Path(self.schema).expanduser())

    def _read(self) -> tables.LabelledTable:
        source = self._source
        if not source:
            raise UserError(
                "the rows of the problem 'silo' are at the nodes; join with fedpareto node up, or name a table: file=…"
            )
        frame = source.of_party()
        found = self.table_schema.problems(frame, frame.columns)
        if found:
            raise UserError(f"{source.name} does not fit the schema: {'; '.join(found)}")
        return self.table_schema.labelled(frame, source.name)

    def _groups(self, attribute: str) -> tables.Groups:
        return self.table_schema.groups(self._table, attribute)

    def _group_count(self, attribute: str) -> int:
        # From the schema: the server, which has no rows, must know it too.
        return len(self.table_schema.attribute(attribute).groups)

    def _encoding(self, training: np.ndarray) -> Callable[[np.ndarray], dict[str, Tensor]]:
        # Nothing is estimated here: a party's own mean would make its inputs differ from those of the others.
        return lambda rows: {"features": torch.from_numpy(self.table_schema.encode(self._table.frame.iloc[rows]))}

    def input_schema(self, clients: int, seed: int) -> InputSchema:
        return self.table_schema.inputs()

    def outputs(self) -> tuple[Output, ...]:
        return (self.table_schema.output,)

    def _inputs(self) -> int:
        # Without a schema, as in a list of all problems, what does not depend on it.
        return self.table_schema.width if self.schema else 0

    def _check_measurable(self, part: str, rows: Rows, whose: str = "", advice: str = "") -> None:
        """Words the error for the party that holds the table."""
        try:
            super()._check_measurable(part, rows)
        except UserError as problem:
            reason = str(problem).partition(";")[0].replace("client 0", self._source.name)
            raise UserError(
                f"{reason}; more rows would help, or a federation that does not ask for it: "
                "fedpareto server init … --set unmeasured=worst"
            ) from None
