"""The keys of random orders as machine code: the same bits as `rng.Addresses.orders` has, in a fraction of the time."""

from __future__ import annotations

import numpy as np

from fedpareto.tensors.jit import compiled
from fedpareto.tensors.philox import LAST, MULTIPLIERS, ROUNDS, WEYL

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
LEFT, RIGHT = (np.uint64(factor) for factor in MULTIPLIERS)
FIRST, SECOND = (np.uint64(step) for step in WEYL)
ABOVE = np.uint64(30)
"""Bits of a place, above which its random word is."""


@compiled
def write_keys(columns: np.ndarray, codes: np.ndarray, counts: np.ndarray, keys: np.ndarray) -> None:
    """Fills `keys` `[n, passes, longest]`, whose order is that of each client's rows: a word of Philox above a place;
    from a client's count on, LAST and the place. `columns` `[4, n]` are seeds, clients, rounds and lanes, and `codes`
    `[passes]` those of the purposes.
    """
    words = np.empty((keys.shape[2] + 3) // 4 * 4, dtype=np.uint64)
    for client in range(keys.shape[0]):
        seed, who, round, lane = columns[:, client]
        for number in range(keys.shape[1]):
            row = keys[client, number]
            key = np.uint64(seed) & LOW, (np.uint64(codes[number]) ^ np.uint64(seed >> 32)) & LOW
            for block in range(len(words) // 4):
                a, b, c, d = np.uint64(block), np.uint64(who) & LOW, np.uint64(lane) & LOW, np.uint64(round) & LOW
                for step in range(ROUNDS):
                    left, right = a * LEFT, c * RIGHT
                    a = (right >> HALF) ^ b ^ ((key[0] + np.uint64(step) * FIRST) & LOW)
                    c = (left >> HALF) ^ d ^ ((key[1] + np.uint64(step) * SECOND) & LOW)
                    b, d = right & LOW, left & LOW
                first = 4 * block
                words[first], words[first + 1], words[first + 2], words[first + 3] = a, b, c, d
            for place in range(len(row)):
                row[place] = np.int64(words[place] << ABOVE) + place if place < counts[client] else LAST + place
