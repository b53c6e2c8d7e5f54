"""Algorithms with less to do, for tests of rules that hold for all of them."""

from __future__ import annotations

LITTLE_WORK = {
    "praffl": {"body_epochs": 1, "head_epochs": 2, "sampled": 4},
    "fedrep": {"head_epochs": 1},
    "mofld": {"training_rounds": 1, "samples": 3},
    "client-mofld": {"training_rounds": 1, "samples": 2},
}
"""Parameters of algorithms that would take long otherwise, or whose rounds come in blocks; the rules are the same."""
