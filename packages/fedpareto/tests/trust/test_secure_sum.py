"""The parts of a secure sum: the ring, keys, masks, shares, and who is whose neighbour."""

from __future__ import annotations

import hashlib
import math
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import hypergeom

from fedpareto.config.errors import UserError
from fedpareto.contract.secure_sum import NOBODY, UNLIKELY, Ring, SecureSum, neighbourhood
from fedpareto.trust import secure_client
from fedpareto.trust import secure_keys as keys
from fedpareto.trust.secure_server import movement


@pytest.mark.parametrize("bits", [32, 64])
def test_a_sum_in_the_ring_is_exact_to_its_precision_and_masks_wrap_around(bits):
    ring, values = Ring(bits, 12), torch.randn(50, 30, dtype=torch.float64)
    whole = ring.encoded(values, 50)
    assert whole.dtype == ring.dtype
    total = ring.decoded(whole.sum(0, dtype=ring.dtype))
    assert (total - values.sum(0)).abs().max() <= 50 * ring.unit / 2
    mask = torch.as_tensor(keys.mask(bytes(32), 30, ring.words).view(f"<i{bits // 8}").copy())
    assert torch.equal(whole[0] + mask - mask, whole[0])


def test_the_largest_values_of_all_clients_do_not_wrap_around_and_larger_ones_are_refused():
    ring = Ring(32, 16)
    largest = ring.largest(7)
    assert (
        ring.decoded(ring.encoded(torch.full((7, 1), largest, dtype=torch.float64), 7).sum(0, dtype=ring.dtype)).item()
        == 7 * largest
    )
    for value in (largest + 1, -largest - 1, math.inf, math.nan):
        with pytest.raises(UserError, match=r"secure_sum: a value of .* does not fit; with bits=32, precision=16"):
            ring.encoded(torch.tensor([[0.0, value]], dtype=torch.float64), 7)


def test_two_parties_agree_on_a_key_that_depends_on_its_purpose_and_round():
    one, other = keys.new_secret(), keys.new_secret()
    here = keys.agreed_key(keys.private_key(one), keys.public_key(other), keys.SEALING, b"1")
    assert here == keys.agreed_key(keys.private_key(other), keys.public_key(one), keys.SEALING, b"1")
    others = [(keys.MASKING, b"1"), (keys.SEALING, b"2")]
    assert here not in [keys.agreed_key(keys.private_key(one), keys.public_key(other), *about) for about in others]
    public = keys.public_key(one)
    assert keys.known_as(public)
    assert not keys.known_as(bytes(32)), "a point with which everybody would agree on the same key"
    assert keys.known_as(public[:31] + bytes([public[31] ^ 128])) == keys.known_as(public), "the same key, spelled anew"


def test_of_clients_with_one_key_neither_is_heard():
    told = [np.frombuffer(secure_client.advertised()[0], dtype=np.uint8) for _ in range(4)]
    told = [np.frombuffer(secure_client.told_of(one.tobytes()), dtype=np.uint8).copy() for one in told]
    assert secure_client.sound(told).tolist() == [True] * 4
    told[3][32:64] = told[1][32:64]
    told[3][63] ^= 128
    told[2][:32] = 0
    assert secure_client.sound(told).tolist() == [True, False, False, False]


def test_a_mask_is_the_same_on_every_machine():
    assert (
        hashlib.sha256(keys.mask(bytes(range(32)), 1000, Ring(64, 24).words)).hexdigest().startswith("51ccb7d076453451")
    )


def test_a_sealed_letter_opens_only_with_its_key_from_its_sender_and_unaltered():
    letter = keys.sealed(bytes(32), 3, b"two shares")
    assert keys.opened(bytes(32), 3, letter) == b"two shares"
    assert keys.opened(bytes(32), 4, letter) is None
    assert keys.opened(b"\1" * 32, 3, letter) is None
    assert keys.opened(bytes(32), 3, bytes([letter[0] ^ 1]) + letter[1:]) is None


def test_any_shares_that_are_enough_give_the_secret_and_one_fewer_fit_every_secret():
    secret, holders = keys.new_secret(), [2, 3, 4, 9, 11]
    shares = dict(zip(holders, keys.shared(secret, holders, 3), strict=True))
    for some in combinations(holders, 3):
        assert keys.joined({holder: shares[holder] for holder in some}) == secret
    # Through two shares and any secret there is a polynomial, with a third share that fits: so two say nothing.
    for guess in (bytes(keys.SECRET), keys.new_secret()):
        (x, a), (y, b) = ((holder + 1, int.from_bytes(shares[holder], "little")) for holder in holders[:2])
        at_one = int.from_bytes(guess, "little") * (1 - x) * (1 - y) * pow(x * y, -1, keys.PRIME)
        at_one += a * (1 - y) * pow(x * (x - y), -1, keys.PRIME) + b * (1 - x) * pow(y * (y - x), -1, keys.PRIME)
        third = (at_one % keys.PRIME).to_bytes(keys.SHARE, "little")
        assert keys.joined({2: shares[2], 3: shares[3], 0: third}) == guess


def test_neighbours_are_mutual_as_many_for_all_and_in_an_order_that_nobody_chooses():
    ids = np.arange(10, 70, 2)
    found = neighbourhood(ids, b"everybody's keys", 8)
    pairs = {(own, other) for own, row in zip(ids.tolist(), found.tolist(), strict=True) for other in row}
    assert len(pairs) == 30 * 8
    assert all((other, own) in pairs and own != other for own, other in pairs)
    assert not np.array_equal(found, neighbourhood(ids, b"other keys", 8))
    few = neighbourhood(ids[:4], b"", 8)
    assert few[1].tolist() == [10, 14, 16, *[NOBODY] * 5], "all others where there are few"


def test_the_number_of_neighbours_grows_like_the_logarithm_and_keeps_colluding_clients_out():
    default = SecureSum("masked")
    assert [default.most_neighbours(clients) for clients in (3, 10, 40)] == [2, 9, 39]
    assert default.most_neighbours(10_000) < default.most_neighbours(1_000) * 1.4 < 160
    k, liars = default.most_neighbours(1000), 100
    both = 2 * default.needed(k + 1) - 1 - k  # Neighbours in league with a server that lies, who give two shares each.
    assert 1000 * hypergeom.sf(both - 1, 999, liars, k) < UNLIKELY
    assert SecureSum("masked", neighbours=7).most_neighbours(1000) == 8, "as many on either side"
    near_a_half = SecureSum("masked", threshold=0.5)
    assert near_a_half.most_neighbours(10_000) < 100, "no number of neighbours helps against every lie there"


def test_more_than_the_threshold_are_needed_also_where_that_is_a_whole_number():
    for percent in range(50, 100):
        sums = SecureSum("masked", threshold=percent / 100)
        assert [sums.needed(of) for of in range(3, 201)] == [percent * of // 100 + 1 for of in range(3, 201)]


def test_the_movement_is_that_of_the_longest_mean_and_none_where_nothing_began():
    begun = {"model": torch.ones(4), "body": torch.zeros(2)}
    means = {"model": torch.tensor([1.0, 1, 1, 4]), "body": torch.tensor([0.0, -1]), "rows": torch.tensor(7.0)}
    assert movement(means, begun, 0.0, 10.0) == 3
    assert movement({"rows": torch.tensor(-7.0), "none": torch.empty(0)}, begun, 0.0, 0.5) == 0
    for far in (1e16, -1e16):
        with pytest.raises(UserError, match=r"holds values up to 1e\+16"):
            movement({"rows": torch.tensor([0.0, far])}, begun, 0.0, math.inf)


def test_a_client_deals_shares_to_two_others_at_least_each_of_whom_is_somebody_else():
    told = np.stack([np.frombuffer(secure_client.advertised()[0], dtype=np.uint8) for _ in range(3)])
    secrets, told = secure_client.advertised()[0], [secure_client.told_of(one.tobytes()) for one in told]
    told = np.stack([np.frombuffer(one, dtype=np.uint8) for one in told])

    def dealt(*peers):
        return secure_client.Party(5, secrets, peers, told[: len(peers)], 1).dealt(lambda of: of // 2 + 1, 0)

    assert len(dealt(3, 9)[0]) == 2
    for peers in ((3,), (3, 3), (3, 5), (3, 9, 3)):
        with pytest.raises(UserError, match="only a sum of at least 3 different clients hides each of them"):
            dealt(*peers)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"threshold": 0.4}, "threshold is 0.4; it is at least 0.5 and below 1"),
        ({"neighbours": 1}, "neighbours is 1; it is at least 2, or 0"),
        ({"colluding": 0.7}, "colluding is 0.7; it is a share from 0 to below threshold"),
        ({"bits": 16}, "bits is 16; it is 32 or 64"),
        ({"bits": 32, "precision": 30}, "precision is 30; it is a number of bits, at most bits - 8"),
    ],
)
def test_what_makes_no_sense_is_refused(values, words):
    with pytest.raises(UserError, match=words):
        SecureSum("masked", **values)
