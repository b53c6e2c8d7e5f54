"""What a client makes of a global model (table 6.2, row 5)."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto_space.session.integration import integrated
from fedpareto_space.wire import rows

SLICES = {"body.weight": slice(0, 6), "body.bias": slice(6, 8), "head.weight": slice(8, 12)}


@pytest.fixture
def models():
    """The new global model, the local one, and the global one that it came from."""
    stream = np.random.default_rng(4)
    return [{"model": stream.standard_normal(12).astype(np.float32)} for _ in range(3)]


def bits(array):
    return array.view(np.uint32).tolist()


def test_replace_is_the_global_model(models):
    new, local, base = models
    assert bits(integrated(rows.Replace(), new, local, base, SLICES)["model"]) == bits(new["model"])


def test_interpolation_0_is_local_and_1_is_replace_bit_for_bit(models):
    new, local, base = models
    new["model"][0], local["model"][0] = -0.0, 0.0
    for share, expected in ((0.0, local), (1.0, new)):
        found = integrated(rows.Interpolate(share), new, local, base, SLICES)["model"]
        assert bits(found) == bits(expected["model"])
    half = integrated(rows.Interpolate(0.5), new, local, base, SLICES)["model"]
    assert np.allclose(half, (new["model"] + local["model"]) / 2)
    assert half.dtype == np.float32


def test_partial_leaves_all_other_tensors_untouched_bit_for_bit(models):
    new, local, base = models
    found = integrated(rows.Partial(("body.*",)), new, local, base, SLICES)["model"]
    assert bits(found[:8]) == bits(new["model"][:8])
    assert bits(found[8:]) == bits(local["model"][8:])


def test_rebase_of_zero_local_steps_is_replace_bit_for_bit(models):
    new, _, base = models
    new["model"][3] = -0.0
    found = integrated(rows.Rebase(), new, {"model": base["model"].copy()}, base, SLICES)["model"]
    assert bits(found) == bits(new["model"])


def test_rebase_puts_the_local_progress_on_top(models):
    new, local, base = models
    found = integrated(rows.Rebase(), new, local, base, SLICES)["model"]
    assert np.allclose(found, new["model"] + (local["model"] - base["model"]))


def test_what_the_client_has_no_version_of_is_taken_as_it_is(models):
    new, local, base = models
    new["weights"] = np.ones(3, dtype=np.float32)
    found = integrated(rows.Interpolate(0.0), new, local, base, SLICES)
    assert bits(found["weights"]) == bits(new["weights"])
    assert integrated(rows.Rebase(), new, {}, {}, SLICES).keys() == {"model", "weights"}
