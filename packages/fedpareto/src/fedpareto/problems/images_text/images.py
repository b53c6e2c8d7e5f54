"""The problems on images by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedpareto.inputs.images_texts import ImageInputs
from fedpareto.problems.images_text import datasets
from fedpareto.problems.images_text.datasets import Examples
from fedpareto.problems.images_text.networks import FlatNetwork, ImageNetwork, Network
from fedpareto.problems.images_text.problem import ClassificationProblem, Partition
from fedpareto.problems.multitask.datasets import CLOTHES, FASHION_MNIST, MNIST


@dataclass(frozen=True)
class ImageProblem(ClassificationProblem):
    """Image classification."""

    shape: ClassVar[tuple[int, int, int]] = (1, 28, 28)
    """Channels, height and width."""
    models: ClassVar[tuple[str, ...]] = ("cnn", "cnn-small", "cnn-femnist", "resnet-18", "mlp", "logistic")

    model: str = "cnn"
    """The network: `cnn` (FedFew's), another of the papers' tables, `resnet-18`, `mlp`, or `logistic` regression."""

    def input_schema(self, clients: int, seed: int) -> ImageInputs:
        return ImageInputs(self.shape)

    def _network(self) -> Network:
        if self.model in ("mlp", "logistic"):
            hidden = self.hidden if self.model == "mlp" else ()
            return FlatNetwork(int(np.prod(self.shape)), hidden, self.outcomes, pixels=True)
        return ImageNetwork(self.model, self.shape, self.outcomes)


@dataclass(frozen=True)
class CIFAR10(ImageProblem):
    """CIFAR-10 (Krizhevsky 2009): small photographs in 10 classes; FedFew's and FedMGDA+'s first benchmark."""

    name: ClassVar[str] = "cifar10"
    outcomes: ClassVar[int] = 10
    class_names: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    )
    shape: ClassVar[tuple[int, int, int]] = (3, 32, 32)
    models: ClassVar[tuple[str, ...]] = ("cnn", "cnn-lrn", "resnet-18", "mlp", "logistic")

    def _read(self) -> Examples:
        return datasets.CIFAR10.examples()


@dataclass(frozen=True)
class CIFAR100(ImageProblem):
    """CIFAR-100 (Krizhevsky 2009): small photographs in 100 classes."""

    name: ClassVar[str] = "cifar100"
    outcomes: ClassVar[int] = 100
    shape: ClassVar[tuple[int, int, int]] = (3, 32, 32)
    models: ClassVar[tuple[str, ...]] = ("cnn", "cnn-lrn", "resnet-18", "mlp", "logistic")

    def _read(self) -> Examples:
        return datasets.CIFAR100.examples()


@dataclass(frozen=True)
class FashionMNIST(ImageProblem):
    """Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): clothing in 10 classes."""

    name: ClassVar[str] = "fashion-mnist"
    outcomes: ClassVar[int] = 10
    class_names: ClassVar[tuple[str, ...]] = CLOTHES

    def _read(self) -> Examples:
        return datasets.grey_images(FASHION_MNIST)


@dataclass(frozen=True)
class Digits(ImageProblem):
    """MNIST (LeCun, Cortes and Burges 1998): handwritten digits."""

    name: ClassVar[str] = "mnist"
    outcomes: ClassVar[int] = 10

    def _read(self) -> Examples:
        return datasets.grey_images(MNIST)


@dataclass(frozen=True)
class Writers(ImageProblem):
    """MNIST by writer, from QMNIST (Yadav and Bottou 2019): 836 natural clients with 19 to 131 digits each."""

    name: ClassVar[str] = "mnist-writers"
    outcomes: ClassVar[int] = 10
    batch_size: ClassVar[int] = 100

    partition: Partition = "natural"
    """Partition of the rows: `natural`, by writer, or as in `mnist`."""

    def _read(self) -> Examples:
        return datasets.QMNIST.examples()


@dataclass(frozen=True)
class PneumoniaMNIST(ImageProblem):
    """PneumoniaMNIST (Yang et al. 2023): chest X-rays of children with and without pneumonia, the medical case."""

    name: ClassVar[str] = "pneumonia-mnist"
    outcomes: ClassVar[int] = 2
    class_names: ClassVar[tuple[str, ...]] = ("normal", "pneumonia")
    usual_clients: ClassVar[int] = 5
    step_size: ClassVar[float] = 0.002
    batch_size: ClassVar[int] = 100

    def _read(self) -> Examples:
        return datasets.PNEUMONIA.examples()
