"""Clients that learn by playing, on nodes of one client each: what they remember stays with them, and they go on."""

from __future__ import annotations

import pytest
from memory_federation import federation_of, node_of, play
from safetensors.numpy import load_file
from test_flower_parity import assert_same_run
from test_flower_praffl import sizes
from test_flower_tap import forms, pieces

from fedpareto.engines.local import MEMORY
from fedpareto.learners.off_policy import PLACE
from fedpareto.spec.draft import Draft

DRAFT = {
    "algorithm": "fedpref",
    "problem": {"name": "deep-sea-treasure", "hidden": [8, 8]},
    "learner": {
        "steps": 32,
        "learning_starts": 20,
        "buffer_size": 60,
        "batch_size": 16,
        "target_update_interval": 24,
        "exploration_steps": 60,
    },
    "clients": 3,
    "rounds": 3,
}
REMEMBERED = {"steps", "target", "first", "second", "moves", "buffer", PLACE + "field", PLACE + "elapsed"}


def spec_of(**values):
    return Draft(DRAFT | values).finish()


@pytest.mark.takes_long
@pytest.mark.parametrize(("algorithm", "target"), [("fedpref", "received"), ("fedprox", "kept")])
def test_players_give_the_same_run_on_nodes(algorithm, target, tmp_path):
    spec = spec_of(algorithm=algorithm, learner=DRAFT["learner"] | {"target": target}, seeds=[3, 5])
    engine, _ = federation_of(spec, tmp_path)
    assert_same_run(spec, engine)


@pytest.mark.takes_long
def test_a_node_that_is_started_anew_after_every_message_plays_on(tmp_path):
    spec = spec_of()
    engine, grid = federation_of(spec, tmp_path)

    def restarted(number, message, reply):
        grid.nodes[number] = node_of(spec, 900 - number, tmp_path)
        return reply

    grid.tamper = restarted
    assert_same_run(spec, engine)


@pytest.mark.takes_long
def test_the_comparison_notices_a_node_that_forgets(tmp_path):
    spec = spec_of()
    engine, grid = federation_of(spec, tmp_path)

    def forgetful(number, message, reply):
        grid.nodes[number] = node_of(spec, 900 - number, tmp_path / f"elsewhere{len(grid.seen)}")
        return reply

    grid.tamper = forgetful
    with pytest.raises(AssertionError, match="models differ"):
        assert_same_run(spec, engine)


@pytest.mark.takes_long
def test_what_a_player_remembers_is_in_its_own_folder_and_in_no_message(tmp_path):
    spec = spec_of(learner=DRAFT["learner"] | {"target": "kept"})
    engine, grid = federation_of(spec, tmp_path)
    states, _ = play(spec, engine)
    everything = b"|".join(pieces({"both ways": grid.seen}))
    for client in range(spec.clients):
        solution = spec.algorithm.solutions(states[0])[client]["model"]
        assert solution.numpy().tobytes() in everything, "models are seen where they cross"
        for name, numbers in secrets(kept_by(client, tmp_path)):
            assert numbers.any(), f"{name} would be found anywhere"
            assert not any(form in everything for _, form in forms(name, numbers)), f"{name} of client {client}"
    objectives = len(spec.problem.objectives)
    assert sizes(one for one in grid.seen if one.metadata.reply_to_message_id) <= {
        spec.problem.layout.size,
        len(spec.problem.parts({})) * objectives,
    }


def kept_by(client, folder):
    """What the node's file of the last round holds, by the names that the learner gives."""
    newest = sorted((folder / f"node{client}" / "private").rglob("*.safetensors"))[-1]
    kept = {name.removeprefix(MEMORY): array for name, array in load_file(newest).items()}
    assert set(kept) == REMEMBERED
    return kept


def secrets(kept):
    """Parts of what was learnt and remembered, none of which anybody was sent."""
    for name in ("target", "first", "second"):
        yield name, kept[name][-40:]
    for step in kept["buffer"]:
        yield "buffer", step
