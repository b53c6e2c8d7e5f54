"""The problems on texts, and Adult as AFL encodes it, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedpareto.config.bounds import AtLeast, Count
from fedpareto.contract.outputs import Output
from fedpareto.inputs.images_texts import TextInputs
from fedpareto.inputs.table import VALUE, Input, InputSchema
from fedpareto.problems.data import kept_until_changed
from fedpareto.problems.fairness.datasets import ADULT, TableSet
from fedpareto.problems.images_text.datasets import AG_NEWS, CHARACTERS, CONTEXT, SHAKESPEARE, Examples
from fedpareto.problems.images_text.networks import CharacterLSTM, FlatNetwork, Network, TextCNN
from fedpareto.problems.images_text.problem import ClassificationProblem, Partition


@dataclass(frozen=True)
class AGNews(ClassificationProblem):
    """AG News (Zhang, Zhao and LeCun 2015): headlines and first sentences on world, sports, business or science."""

    name: ClassVar[str] = "ag-news"
    is_text: ClassVar[bool] = True
    outcomes: ClassVar[int] = 4
    class_names: ClassVar[tuple[str, ...]] = ("world", "sports", "business", "science")
    models: ClassVar[tuple[str, ...]] = ("textcnn",)
    batch_size: ClassVar[int] = 100

    model: str = "textcnn"
    """The network: `textcnn` (Kim 2014)."""
    vocabulary: Annotated[int, AtLeast(3)] = 10_000
    """Size of the vocabulary: the most frequent words of the training split, with padding and the unknown word."""
    length: Annotated[int, AtLeast(max(TextCNN.widths))] = 64
    """Words of a text that are used."""
    embedding: Count = 32
    """Size of a word's embedding."""

    def input_schema(self, clients: int, seed: int) -> TextInputs:
        return TextInputs(self.length, AG_NEWS.words(self.vocabulary))

    def _network(self) -> Network:
        return TextCNN(self.vocabulary, self.embedding, self.outcomes)

    def _read(self) -> Examples:
        return AG_NEWS.examples(self.vocabulary, self.length)


@dataclass(frozen=True)
class Shakespeare(ClassificationProblem):
    """Shakespeare: the next character of a role's text, from the 80 before; 99 natural clients, the roles."""

    name: ClassVar[str] = "shakespeare"
    is_text: ClassVar[bool] = True
    answer: ClassVar[str] = "next character"
    class_names: ClassVar[tuple[str, ...]] = tuple(CHARACTERS)
    outcomes: ClassVar[int] = len(CHARACTERS)
    models: ClassVar[tuple[str, ...]] = ("lstm",)
    usual_clients: ClassVar[int] = 31
    step_size: ClassVar[float] = 0.8
    batch_size: ClassVar[int] = 10
    in_order: ClassVar[bool] = True

    partition: Partition = "natural"
    """Partition of the rows: `natural`, by role, or as in `cifar10`."""
    model: str = "lstm"
    """The network: `lstm`, LSTM layers on character embeddings."""
    units: Count = 256
    """Units of each LSTM layer."""
    layers: Count = 2
    """Number of LSTM layers."""

    def input_schema(self, clients: int, seed: int) -> TextInputs:
        return TextInputs(CONTEXT, characters=CHARACTERS)

    def _network(self) -> Network:
        return CharacterLSTM(self.outcomes, hidden=self.units, layers=self.layers)

    def _read(self) -> Examples:
        return SHAKESPEARE.examples()


CATEGORIES: Mapping[str, int] = {
    **{"workclass": 8, "education": 16, "marital-status": 7, "occupation": 14},
    **{"relationship": 6, "race": 5, "sex": 2, "native-country": 41},
}
"""The categorical columns of Adult, and their numbers of values; missing is not one of them."""
ADULT_TRAINING_ROWS = 32_561


@kept_until_changed
def people(adult: TableSet) -> Examples:
    """Adult as in AFL (Mohri et al. 2019): one-hot encoding of the 99 values; people with and without a doctorate."""
    table = adult.table()
    encoded = _dummies().to_numpy(dtype=np.uint8)
    without = (table.frame["education"] != "Doctorate").to_numpy().astype(np.int64)
    tested = np.arange(len(encoded)) >= ADULT_TRAINING_ROWS
    return Examples(encoded, table.label.astype(np.int64), tested, without)


def _people_schema() -> tuple[InputSchema, Output]:
    # A column's name is that of the table, and after a "_" the value; no name of the table has one in it.
    inputs = (column.partition("_") for column in _dummies())
    return InputSchema(tuple(Input(name, VALUE, value=value) for name, _, value in inputs)), ADULT.table().output


def _dummies() -> Any:
    import pandas

    return pandas.get_dummies(ADULT.table().frame[list(CATEGORIES)])


@dataclass(frozen=True)
class AdultPhD(ClassificationProblem):
    """UCI Adult as in AFL (Mohri et al. 2019): people with a doctorate are one client, all others the other."""

    name: ClassVar[str] = "adult-phd"
    outcomes: ClassVar[int] = 2
    models: ClassVar[tuple[str, ...]] = ("logistic", "mlp")
    usual_clients: ClassVar[int] = 2
    step_size: ClassVar[float] = 0.01
    batch_size: ClassVar[int] = 10

    partition: Partition = "natural"
    """Partition of the rows: `natural`, doctorates first, or as in `cifar10`."""
    files: Literal["merged", "training", "official"] = "official"
    """Published rows that are used, as in `cifar10`."""
    model: str = "logistic"
    """The network: `logistic` regression, or `mlp`."""

    def input_schema(self, clients: int, seed: int) -> InputSchema:
        """A 0 or 1 for each value of each column of words."""
        return _people_schema()[0]

    def outputs(self) -> tuple[Output, ...]:
        return (_people_schema()[1],)

    def _network(self) -> Network:
        hidden = self.hidden if self.model == "mlp" else ()
        return FlatNetwork(sum(CATEGORIES.values()), hidden, self.outcomes)

    def _read(self) -> Examples:
        return people(ADULT)
