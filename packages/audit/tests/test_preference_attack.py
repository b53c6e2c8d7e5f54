"""A preference read off updates: exact where nothing hides it, guessing where noise does."""

from __future__ import annotations

import numpy as np
import torch

from fedpareto_audit import preference_attack as attack


def shadows(count, noise=0.0, features=20, seed=0):
    """Updates that are linear in the preference, with noise; and a map that made them."""
    stream = torch.Generator().manual_seed(seed)
    preferences = torch.rand(count, 1, generator=stream).double()
    preferences = torch.cat([preferences, 1 - preferences], dim=1)
    directions = torch.randn(2, features, generator=torch.Generator().manual_seed(99)).double()
    return preferences @ directions + noise * torch.randn(count, features, generator=stream).double(), preferences


def error_with(count, noise, victims=200):
    known, preferences = shadows(count, noise)
    seen, true = shadows(victims, noise, seed=7)
    return attack.error(attack.infer(known, preferences, seen).estimates, true)


def test_a_linear_trace_of_the_preference_is_read_exactly():
    assert error_with(8, 0.0) < 1e-3


def test_more_shadows_give_a_smaller_error_and_endless_noise_gives_guessing():
    errors = [error_with(count, 1.0) for count in (4, 16, 64, 256)]
    assert errors == sorted(errors, reverse=True)
    _, true = shadows(200, seed=7)
    known, preferences = shadows(32, 1e6)
    found = attack.infer(known, preferences, shadows(200, 1e6, seed=7)[0])
    guess = attack.error(torch.full_like(true, 0.5), true)
    assert abs(attack.error(found.estimates, true) - guess) < 0.05


def test_what_the_attacker_expects_of_itself_is_what_it_gets():
    known, preferences = shadows(64, 0.5)
    seen, true = shadows(500, 0.5, seed=3)
    found = attack.infer(known, preferences, seen)
    assert abs(found.expected - attack.error(found.estimates, true)) < 0.03


def test_leaving_a_shadow_out_in_closed_form_is_leaving_it_out():
    """As many features as there are shadows fit all of them, and would promise anything."""
    known, preferences = shadows(12, 1.0, features=40)
    found = attack.infer(known, preferences, known[:1])
    assert found.how.startswith("linear")
    ridge, scale = float(found.how.rpartition(" ")[2]), known.std(0) if "standardised" in found.how else 1
    rows = (known - known.mean(0)) / scale
    gram = rows @ rows.mT
    penalty = ridge * float(torch.linalg.eigvalsh(gram).mean())
    for row in range(12):
        others = [i for i in range(12) if i != row]
        mean, centre = preferences[others].mean(0), rows[others].mean(0)
        left, one = rows[others] - centre, rows[row] - centre
        weights = torch.linalg.solve(left @ left.mT + penalty * torch.eye(11), preferences[others] - mean)
        by_hand = attack.on_simplex((mean + one @ left.mT @ weights)[None])[0]
        assert torch.allclose(by_hand, found.left_out[row], atol=1e-6)


def test_parts_of_which_one_tells_all_are_worth_as_much_as_that_one():
    known, preferences = shadows(32, 0.1, features=4)
    seen, true = shadows(100, 0.1, features=4, seed=6)
    stream = torch.Generator().manual_seed(8)
    blur = [30 * torch.randn(len(rows), 50, generator=stream).double() for rows in (known, seen)]
    wide, seen_wide = torch.cat([blur[0], known], dim=1), torch.cat([blur[1], seen], dim=1)
    whole = attack.error(attack.infer(wide, preferences, seen_wide).estimates, true)
    parts = [slice(0, 50), slice(50, 54)]
    by_parts = attack.error(attack.infer_by_parts(wide, preferences, seen_wide, parts).estimates, true)
    alone = attack.error(attack.infer(known, preferences, seen).estimates, true)
    assert by_parts < 1.3 * alone
    assert by_parts < 0.8 * whole


def test_a_sum_of_clients_tells_less_of_one_than_its_own_update():
    known, preferences = shadows(64, 0.1)
    seen, true = shadows(10, 0.1, seed=5)
    alone = attack.error(attack.infer(known, preferences, seen).estimates, true)
    summed = attack.infer_from_sum(known, preferences, seen.mean(0), (), 10, np.random.default_rng(0)).estimates
    together = attack.error(summed.expand_as(true), true)
    assert alone < 0.05 < together
    # Yet it tells their mean, which is all there is in a sum.
    assert attack.error(summed[0], true.mean(0)) < 0.03


def test_the_nearest_preference_of_one_is_itself_and_of_others_on_the_simplex():
    rows = torch.tensor([[0.3, 0.7, 0.0], [2.0, 0.0, 0.0], [-1.0, 0.4, 0.4]]).double()
    found = attack.on_simplex(rows)
    assert torch.allclose(found[0], rows[0])
    assert torch.allclose(found, torch.tensor([[0.3, 0.7, 0], [1, 0, 0], [0, 0.5, 0.5]]).double())
