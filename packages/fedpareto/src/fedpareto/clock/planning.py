"""Planned closing of rounds, from known arrivals and presence of clients: idling against staleness.

The idea is that of FedSpace (So et al., "FedSpace: an efficient federated learning framework at satellites and ground
stations", 2022): who has replied idles until there is a new model and somebody to bring it, and every new model makes
all updates under way one version older. FedSpace searches for aggregation times with a utility that it fits to earlier
training. Here nothing is fitted: staleness costs what the policy's s(τ) takes from updates, idling the updates that
would have been trained meanwhile, and the round is closed where the cost of each reply is lowest.
"""

from __future__ import annotations

import numpy as np

from fedpareto.clock.activity import OUT
from fedpareto.clock.in_flight import Flight
from fedpareto.clock.policy import Policy


def is_time(policy: Policy, flight: Flight, round_: int, here: np.ndarray, most: int) -> bool:
    """Decide to close a round now, with the replies that are `here` (rows), or to wait for up to `most` of them."""
    out = np.flatnonzero(flight.status == OUT)
    flight.know_arrivals(out)
    order = out[np.argsort(flight.arrives[out], kind="stable")]
    following = order[np.isfinite(flight.arrives[order])][: most - len(here)]
    idle = idling(flight, here, following)
    aged = round_ - flight.version[out]
    staleness = float((policy.weights(aged) - policy.weights(aged + 1)).sum())
    return is_cheapest_now(staleness, policy.idling * idle, len(here))


def is_cheapest_now(staleness: float, idle: np.ndarray, replies: int) -> bool:
    """Check whether (staleness + idle_m) / (replies + m), what each reply costs if the round waits for m more, is least
    at m = 0.
    """
    each = (staleness + idle) / (replies + np.arange(len(idle)))
    return bool(each[0] <= each.min())


def idling(flight: Flight, here: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Compute how long the clients idle whose replies a round has, in trainings that they would have done meanwhile,
    `[1 + k]`: if it closes now, and with each of the `following` arrivals.

    A reply's client could go on once it can be reached after its arrival, and does so once it can be reached after the
    end of the round; a training takes it as long as the one that it replied with.
    """
    rows = np.concatenate([here, following])
    arrivals = np.concatenate([flight.landed[here], flight.arrives[following]])
    closing = np.concatenate([[flight.now], flight.arrives[following]])
    could = flight.fleet.coming(rows, arrivals)
    trips = arrivals - flight.left[rows]
    found = np.zeros(len(closing))
    for more, time in enumerate(closing.tolist()):
        own = slice(len(here) + more)
        lost = flight.fleet.coming(rows[own], np.full(len(rows[own]), time)) - could[own]
        # A client that is never reached again idles no longer, whatever happens; one that works in no time loses none.
        counts = np.isfinite(lost) & (trips[own] > 0)
        found[more] = (lost[counts] / trips[own][counts]).sum()
    return found
