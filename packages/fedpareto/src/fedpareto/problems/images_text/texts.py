"""The problems on texts, and Adult as AFL encodes it, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedpareto.config.errors import UserError
from fedpareto.contract.outputs import Output
from fedpareto.inputs.images_texts import TextInputs
from fedpareto.inputs.table import InputSchema
from fedpareto.problems.images_text import people, text_sets
from fedpareto.problems.images_text.examples import Examples
from fedpareto.problems.images_text.networks import CharacterLSTM, FlatNetwork, Network, TextCNN
from fedpareto.problems.images_text.problem import ClassificationProblem, Partition
from fedpareto.problems.images_text.text_sets import CHARACTERS, CONTEXT


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
    vocabulary: int = 10_000
    """Size of the vocabulary: the most frequent words of the training split, with padding and the unknown word."""
    length: int = 64
    """Words of a text that are used."""
    embedding: int = 32
    """Size of a word's embedding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        widest = max(TextCNN(1, 1, 1).widths)
        if self.vocabulary < 3 or self.length < widest or self.embedding < 1:
            raise UserError(f"vocabulary is at least 3, length at least {widest} and embedding at least 1")

    def input_schema(self, clients: int, seed: int) -> TextInputs:
        return TextInputs(self.length, text_sets.AG_NEWS.words(self.vocabulary))

    def _network(self) -> Network:
        return TextCNN(self.vocabulary, self.embedding, self.outcomes)

    def _read(self) -> Examples:
        return text_sets.AG_NEWS.examples(self.vocabulary, self.length)


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
    units: int = 256
    """Units of each LSTM layer."""
    layers: int = 2
    """Number of LSTM layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.units < 1 or self.layers < 1:
            raise UserError("units and layers are at least 1")

    def input_schema(self, clients: int, seed: int) -> TextInputs:
        return TextInputs(CONTEXT, characters=CHARACTERS)

    def _network(self) -> Network:
        return CharacterLSTM(self.outcomes, hidden=self.units, layers=self.layers)

    def _read(self) -> Examples:
        return text_sets.SHAKESPEARE.examples()


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
        return people.people_schema()[0]

    def outputs(self) -> tuple[Output, ...]:
        return (people.people_schema()[1],)

    def _network(self) -> Network:
        hidden = self.hidden if self.model == "mlp" else ()
        return FlatNetwork(sum(people.CATEGORIES.values()), hidden, self.outcomes)

    def _read(self) -> Examples:
        return people.people()
