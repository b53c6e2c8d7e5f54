"""Members found by likelihood ratios: all by a model that memorises, none by one that never saw anybody."""

from __future__ import annotations

import torch

from fedpareto_audit import membership_attack as attack


def losses(rows, models, seed=0):
    """Of rows that differ in difficulty, under models that never saw them."""
    stream = torch.Generator().manual_seed(seed)
    hard = torch.rand(rows, generator=stream) * 3
    return (hard + 0.1 * torch.randn(models, rows, generator=stream)).clamp_min(0).double()


def test_the_area_is_the_share_of_pairs_in_the_right_order():
    members, strangers = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([2.0, 0.0])
    pairs = [(a > b) + 0.5 * (a == b) for a in members.tolist() for b in strangers.tolist()]
    assert attack.area_under_curve(members, strangers) == sum(pairs) / len(pairs)


def test_a_model_that_never_saw_anybody_gives_nobody_away():
    known = losses(4000, 5)
    found = attack.scores(known[0], known[1:], torch.ones(4, 4000, dtype=torch.bool), 1.0)
    assert abs(attack.area_under_curve(found[:2000], found[2000:]) - 0.5) < 0.03
    assert abs(attack.found_at(found[:2000], found[2000:]) - 0.01) < 0.015


def test_a_model_that_memorises_gives_everybody_away_where_the_plain_loss_does_not():
    known = losses(400, 5)
    target = known[0].clone()
    target[:200] = (target[:200] - 1).clamp_min(0)  # Members are learnt, however hard they are.
    target[:200] = torch.minimum(target[:200], known[1:, :200].amin(0) - 0.5)
    found = attack.scores(target, known[1:], torch.ones(4, 400, dtype=torch.bool), 1.0)
    assert attack.area_under_curve(found[:200], found[200:]) == 1
    assert attack.found_at(found[:200], found[200:]) == 1
    assert attack.area_under_curve(-target[:200], -target[200:]) < 0.95


def test_a_reference_that_saw_the_row_does_not_count():
    known = losses(50, 3)
    spoiled = known.clone()
    spoiled[2, :25] = 0
    outside = torch.ones(2, 50, dtype=torch.bool)
    outside[1, :25] = False
    once = attack.scores(known[0], spoiled[1:], outside, 1.0)
    assert torch.equal(once[:25], attack.scores(known[0], known[1:2], outside[:1], 1.0)[:25])


def test_the_offset_is_chosen_where_references_find_each_other_out():
    known = losses(300, 4)
    inside = torch.rand(4, 300, generator=torch.Generator().manual_seed(1)) < 0.5
    learnt = torch.where(inside, known * 0.3, known)
    assert attack.chosen_offset(learnt, inside) in attack.OFFSETS
    assert attack.chosen_offset(learnt[:1], inside[:1]) == 1
