"""A package that is not installed is named by its entry points."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fedpareto.config import plugins
from fedpareto.config.errors import UserError
from fedpareto.contract import registry
from fedpareto.contract.registry import problem_class
from fedpareto.spec.backends import backend

PACKAGES = Path(__file__).parents[3]


def test_the_table_of_offers_is_what_the_packages_declare():
    declared = {}
    for file in PACKAGES.glob("*/pyproject.toml"):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        if project["name"] != "fedpareto":
            points = project.get("entry-points", {})
            declared[project["name"]] = {group: tuple(sorted(names)) for group, names in points.items()}
    known = {
        name: {group: tuple(sorted(found)) for group, found in one.items()} for name, one in plugins.OFFERS.items()
    }
    assert known == declared


@pytest.fixture
def alone(monkeypatch):
    """As where no other package is installed."""
    for module in ("fedpareto.config.plugins", "fedpareto.spec.backends", "fedpareto.contract.registry"):
        monkeypatch.setattr(f"{module}.entry_points", lambda **_: [])
    registry.refresh()
    yield
    registry.refresh()


def test_a_missing_package_is_named_by_what_it_offers(alone):
    with pytest.raises(UserError, match="needed for the engine 'ray'; try: pip install fedpareto-ray"):
        backend("ray")
    with pytest.raises(UserError, match="needed for the problem 'link-scheduling'; try: pip install fedpareto-space"):
        problem_class("link-scheduling")
    with pytest.raises(UserError, match="needed for using a run's models; try: pip install fedpareto-serve"):
        plugins.need("fedpareto.functions", "load", "using a run's models")
