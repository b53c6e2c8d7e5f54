"""PraFFL on real processes: bodies cross the wire, hypernetworks stay at home, the numbers are the local engine's."""

from __future__ import annotations

import math
import time

import pytest
import torch
from memory_federation import federations_of, local_engine
from real_federation import messages_on, nodes_of, server_of
from safetensors.numpy import load_file
from test_flower_parity import assert_same_run
from test_flower_tap import forms, pieces

from fedpareto.contract.conditioned import tolerances
from fedpareto.spec.draft import Draft

DRAFT = {
    "algorithm": {"name": "praffl", "body_epochs": 2, "head_epochs": 2, "sampled": 8},
    "problem": {"name": "synthetic", "partition": "fedfb", "hidden": [4, 4, 4]},
    "learner": {"lr": 0.005, "optimiser": "adam", "batch_size": 128},
    "clients": 3,
    "rounds": 2,
}


@pytest.mark.takes_long
def test_bodies_cross_the_wire_and_nothing_else(real, tmp_path):
    spec = Draft(DRAFT).finish()
    real.serve(nodes_of(DRAFT, tmp_path), record=True)
    begin = time.time()
    engine = server_of(spec, real.grid)
    assert_same_run(spec, engine, local_engine(spec, chunk=1))
    crossed = messages_on(real.federation.tap, begin)
    anatomy = spec.algorithm.anatomy(spec.problem.layout, 2)
    assert sizes(crossed["up"]) <= {anatomy.body.size, *shapes_of_evaluations(spec)}
    everything = b"|".join(pieces(crossed))
    for client in range(spec.clients):
        kept = list((tmp_path / f"node{client}" / "private").rglob("*.safetensors"))
        assert kept, "a node keeps its hypernetwork in a file of its own"
        for path in kept:
            own = load_file(path)["hypernetwork"]
            for secret in (own[:50], head_of(spec, anatomy, own, client)[:20]):
                assert not any(form in everything for _, form in forms("private", secret))
    for federation in federations_of(spec):
        for preference in federation.preferences:
            assert not any(secret in everything for _, secret in forms("preference", preference))


def sizes(messages):
    """How many numbers each tensor that came up holds."""
    return {
        math.prod(array.shape)
        for message in messages
        for record in message.content.array_records.values()
        for array in record.values()
    }


def shapes_of_evaluations(spec):
    """Objectives on every part of the data ride along."""
    return {len(federations_of(spec)[0].splits) * len(spec.problem.objectives)}


def head_of(spec, anatomy, hypernetwork, client):
    """The head that the client uses."""
    preference = torch.as_tensor(federations_of(spec)[0].preferences[client]).float()
    network = anatomy.hypernetwork.layout.unflatten(torch.as_tensor(hypernetwork)[None])
    heads = anatomy.heads(network, tolerances(preference, anatomy.margin)[None, None])
    return torch.cat([part.reshape(-1) for part in heads.values()]).detach().numpy()
