"""What other packages offer by name, and that a broken one is nobody else's trouble."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from fedpareto.config.errors import UserError
from fedpareto.contract import registry


@pytest.fixture
def offers(monkeypatch):
    """Sets what entry points there are."""

    def set_to(*points):
        monkeypatch.setattr(registry, "entry_points", lambda group: [one for one in points if one.group == group])
        registry.refresh()

    yield set_to
    monkeypatch.undo()
    registry.refresh()


def point(name, value, group="fedpareto.algorithms"):
    return EntryPoint(name, value, group)


def test_a_package_that_is_gone_stops_only_those_who_ask_for_it(offers):
    offers(point("gone", "no_such_module:Gone"))
    assert registry.make_algorithm("fedavg").name == "fedavg"
    with pytest.raises(UserError, match=r"'gone' of the package .* cannot be loaded: No module named 'no_such_module'"):
        registry.make_algorithm("gone")
    with pytest.raises(UserError, match="cannot be loaded"):
        registry.make_algorithm("gone+ft")
    assert {"fedavg", "fedpref"} <= registry.algorithms().keys()
    assert [why.partition(" cannot")[0] for why in registry.broken()] == ["'gone' of the package no_such_module:Gone"]


def test_a_name_that_is_not_the_classes_own_or_is_taken_is_said_when_it_is_asked_for(offers):
    offers(
        point("average", "fedpareto.algorithms.averaging.fedavg:FedAvg"),
        point("fedavg", "fedpareto.algorithms.averaging.fedavg:FedAvg"),
    )
    with pytest.raises(UserError, match="is called 'fedavg', not 'average'"):
        registry.make_algorithm("average")
    assert registry.algorithms()["fedavg"].__module__ == "fedpareto.algorithms.averaging.fedavg"
    assert any("a name of fedpareto's own" in why for why in registry.broken())


def test_a_plug_in_that_ends_the_process_when_it_is_imported_is_reported_and_passed_over(offers, tmp_path, monkeypatch):
    (tmp_path / "one_that_ends.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    offers(point("ends", "one_that_ends:Ends"))
    assert {"fedavg", "fedpref"} <= registry.algorithms().keys()
    assert "'ends'" in registry.broken()[0]
    with pytest.raises(UserError, match="cannot be loaded"):
        registry.make_algorithm("ends")
