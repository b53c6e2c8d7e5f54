"""The published data sets are not in the repository: FEDPARETO_DATA says where they lie."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from fedpareto.problems.data import DataSet, data_folder, data_set


@pytest.fixture(scope="session")
def published() -> Callable[[str], DataSet]:
    """`published("adult")` is that data set; without its files the test is skipped by name, but in CI it fails."""

    def find(name: str) -> DataSet:
        dataset = data_set(name)
        if not all(dataset.paths()):
            message = f"the data set {name} is not in {data_folder()}; set FEDPARETO_DATA to where it lies"
            if os.environ.get("CI", "").lower() in ("1", "true"):
                pytest.fail(message)
            pytest.skip(message)
        return dataset

    return find
