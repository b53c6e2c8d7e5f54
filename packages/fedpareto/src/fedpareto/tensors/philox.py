"""The constants of Philox4x32-10, the generator behind every random number of a run."""

from __future__ import annotations

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
"""Growth of its key in each round."""
ROUNDS = 10
LAST = 1 << 62
"""A sorting key after all others."""
