"""The words that sections of a spec can be, such as `policy: buffered`."""

from __future__ import annotations

from typing import Literal

Devices = Literal["none", "equal", "lognormal", "tiers", "file"]
Policy = Literal["sync", "deadline", "buffered", "asynchronous", "tiers", "planned"]
Selection = Literal["random", "round-robin", "available", "power-of-choice", "oort", "nsga2"]
Privacy = Literal["none", "central", "local", "distributed"]
SecureSum = Literal["none", "masked"]
Attack = Literal[
    "none",
    "bias",
    "scaling",
    "sign-flip",
    "gaussian",
    "label-flip",
    "inflated-count",
    "collusion",
    "free-rider",
    "seldom",
    "low-quality",
    "backdoor",
]
Defence = Literal["none", "clip", "median", "trimmed-mean", "krum", "multi-krum", "fedmgda-plus", "confidence"]
