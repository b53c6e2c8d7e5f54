"""What crosses the wire of a real run, in both directions: models do; preferences, rows and private tensors do not."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from factory import keeper_spec
from memory_federation import DRAFT, federations_of, play
from real_federation import messages_on, nodes_of, server_of
from safetensors.numpy import load_file

from fedpareto.spec.draft import Draft
from fedpareto_flower.engine import wire

ROWS = 100
"""As many are looked for in each part of the data, the first among them."""
KEEPER = DRAFT | {"algorithm": "fedavg", "rounds": 1}


@pytest.mark.takes_long
@pytest.mark.parametrize("leaks", [(), ("row", "preference", "private")], ids=["none", "all"])
def test_only_what_the_algorithm_sends_crosses_the_wire_and_a_leak_is_seen(leaks, real, tmp_path):
    spec = keeper_spec(Draft(KEEPER).finish(), leaks)
    real.serve(nodes_of(KEEPER, tmp_path, make="make_keeper", leaks=leaks), record=True)
    begin = time.time()
    states, _ = play(spec, server_of(spec, real.grid))
    crossed = messages_on(real.federation.tap, begin)
    assert_everything_was_seen(spec, states[0], crossed)
    everything = b"|".join(pieces(crossed))
    found = {kind for kind, secret in secrets(spec, tmp_path) if secret in everything}
    assert found == set(leaks), "each client leaks something else"


def assert_everything_was_seen(spec, state, crossed):
    """Every exchange of every client in both directions, and the final model: the tap is not blind."""
    exchanges = spec.rounds + 1
    for way, kind in (("down", "envelope"), ("up", "answer")):
        headers = [json.loads(one.content.config_records[wire.HEADER][wire.HEADER]) for one in crossed[way]]
        counts = dict.fromkeys(range(spec.clients), 0)
        for header in headers:
            if header["kind"] == kind:
                counts[header["client"]] += 1
        assert set(counts.values()) == {exchanges}
    assert any(state.model.numpy().tobytes() in piece for piece in pieces({"down": crossed["down"]}))


def pieces(crossed):
    """Everything that the messages hold: headers as text, tensors as bytes."""
    for messages in crossed.values():
        for message in messages:
            yield message.content.config_records[wire.HEADER][wire.HEADER].encode()
            for record in message.content.array_records.values():
                yield from (array.data for array in record.values())


def secrets(spec, folder):
    """What no one else may learn, in every form in which it might travel, by kind."""
    for federation in federations_of(spec):
        for preference in federation.preferences:
            yield from forms("preference", preference)
        for rows in federation.splits.values():
            for column in rows.columns.values():
                if column.ndim == 2 and column.is_floating_point():
                    for row in column[:: len(column) // ROWS].numpy():
                        yield from forms("row", row)
    for client in range(spec.clients):
        kept = list((folder / f"node{client}" / "private").rglob("*.safetensors"))
        assert kept
        for path in kept:
            yield from forms("private", load_file(path)["kept"][:100])


def forms(kind, numbers):
    for precision in ("<f4", "<f8"):
        yield kind, np.asarray(numbers).astype(precision).tobytes()
    yield kind, ",".join(f"{number:.5f}" for number in numbers).encode()[:-2]
