"""Ways to learn across a constellation, by the names of their papers (section 6.1.1 of the thesis).

A scheme is a few entries of a mission's spec: which algorithm learns, for whom a round waits, and how messages travel.
Any other algorithm of the library takes the place of the one that is named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedpareto.config.errors import UnknownName
from fedpareto_space.orbits.circular import Shell

PLATFORMS = ("hap-north=52.5,13.4,20000@0", "hap-middle=13.0,77.5,20000@0", "hap-south=-46.5,168.4,20000@0")
"""Servers in the air of FedHAP: 20 km above Berlin, Bangalore and Awarua, with a free view down to the horizon."""


@dataclass(frozen=True)
class Scheme:
    """One of them."""

    paper: str
    changes: Mapping[str, Any]
    """Entries of a spec: algorithm, policy, and options of the engine."""
    differs: str
    """From the paper."""


SCHEMES = {
    "fedavg": Scheme(
        "McMahan et al. 2017",
        {"algorithm": "fedavg", "policy": {"kind": "sync"}},
        "nothing: every round waits for all satellites",
    ),
    "fedasync": Scheme(
        "Xie, Koyejo and Gupta 2019",
        {"algorithm": "fedasync", "policy": {"kind": "asynchronous"}},
        "without the pull towards the model that was sent",
    ),
    "fedbuff": Scheme(
        "Nguyen et al. 2022",
        {"algorithm": "fedbuff", "policy": {"kind": "buffered"}},
        "without privacy",
    ),
    "fedspace": Scheme(
        "So et al. 2022",
        {"algorithm": "fedbuff", "policy": {"kind": "planned"}},
        "no utility is learnt: a round closes where idling and staleness cost each reply least, by the known arrivals",
    ),
    "fedgsm": Scheme(
        "Wu and Zhang 2023",
        {"algorithm": "fedbuff", "policy": {"kind": "buffered", "compensation": "taylor"}},
        "a buffer of replies; late ones are extrapolated by the Taylor term of Zheng et al. 2017",
    ),
    "fedisl": Scheme(
        "Razmi et al. 2022, 2024",
        {"algorithm": "fedavg", "policy": {"kind": "sync"}, "engine": {"route": "plane"}},
        "the server is where stations and relays are; a plane adds up its updates on the way, as in the second paper",
    ),
    "fedhap": Scheme(
        "Elmahallawy and Luo 2022, FedHAP",
        {
            "algorithm": "fedavg",
            "policy": {"kind": "sync"},
            "engine": {"stations": list(PLATFORMS)},
        },
        "platforms are joined on the ground and have one model; no links between satellites, unless route is plane",
    ),
    "asyncfleo": Scheme(
        "Elmahallawy and Luo 2022, AsyncFLEO",
        {"algorithm": "fedbuff", "policy": {"kind": "tiers"}, "engine": {"route": "plane"}},
        "groups are the planes, not found by similarity; staleness is discounted by the policy's s(τ)",
    ),
    "dsfl": Scheme(
        "Wu, Zhu and Wang 2022",
        {
            "algorithm": {"name": "dsfl", "graph": "torus"},
            "policy": {"kind": "sync"},
            "engine": {"route": "swarm"},
        },
        "who trains is not chosen by energy; a round ends for all at once",
    ),
}


def changed_to(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A mission's spec, as in its file, under a scheme; options of its engine that the scheme does not name stay."""
    if name not in SCHEMES:
        raise UnknownName("scheme", name, SCHEMES)
    changes = dict(SCHEMES[name].changes)
    engine = {"name": "mission", **dict(spec.get("engine", {})), **changes.get("engine", {})}
    if engine.get("route") == "swarm" and "shell" in engine:
        shell = Shell.parse(engine["shell"], Shell.altitude, Shell.inclination)
        changes["algorithm"] = {**changes["algorithm"], "planes": shell.planes}
    return {**spec, **changes, "engine": engine}
