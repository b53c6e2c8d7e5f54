"""Figure 6.2 of the thesis end to end, and a short federation, on this machine."""

from __future__ import annotations

import json

import pytest

from fedpareto.config.errors import UserError
from fedpareto.problems.synthetic import Synthetic
from fedpareto_space.formats import nnef
from fedpareto_space.session.rehearsal import Rehearsing, network_of
from fedpareto_space.wire import messages
from sessions import small


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """A model and a federation over links that lose a third of all frames."""
    folder, steps = tmp_path_factory.mktemp("rehearsal"), []
    spec = small("lft-fedavg")
    rehearsing = Rehearsing(spec, folder, loss=0.3, with_faults=False, on_step=lambda: steps.append(1))
    return rehearsing.run(), folder, len(steps), rehearsing.steps


def test_the_satellites_predictions_are_those_on_the_ground_bit_for_bit(rehearsed):
    found, *_ = rehearsed
    assert found.delivered.identical
    assert found.delivered.predictions_equal
    assert found.delivered.lost > 0
    assert found.delivered.sent > found.delivered.size
    assert found.delivered.difference < 1e-5


def test_the_federation_has_the_local_engines_model(rehearsed):
    found, *_ = rehearsed
    assert found.federated.equal
    assert found.federated.digest == found.federated.reference
    assert found.good


def test_what_people_look_at_is_in_the_folder(rehearsed):
    found, folder, steps, planned = rehearsed
    assert steps == planned
    assert json.loads((folder / "rehearsal.json").read_text())["delivered"]["digest"] == found.delivered.digest
    page = (folder / "index.html").read_text()
    assert "equal bit for bit" in page
    assert "<svg" in page
    for name in ("offer", "accept", "global", "update", "receipt", "close"):
        assert messages.decode((folder / "messages" / f"{name}.flp").read_bytes()).type.name == name.upper()


def test_a_flipped_bit_of_the_model_is_seen(monkeypatch, tmp_path):
    def damaged(data, folder, where):
        place = data.rindex(b"\x3f") if b"\x3f" in data else len(data) // 2
        original(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], folder, where)

    original = nnef.unpacked
    monkeypatch.setattr(nnef, "unpacked", damaged)
    delivered = Rehearsing(small("lft-fedavg"), tmp_path, loss=0.0).deliver()
    assert not delivered.predictions_equal


def test_a_problem_without_a_network_is_named():
    spec = small("fedavg")
    with pytest.raises(UserError, match="convex has no network that could be sent"):
        network_of(spec.problem, spec.problem.initial(0))
    assert network_of(Synthetic(), Synthetic().initial(0)).layout == Synthetic().layout
