"""Two depths of a mission's links: what a fluid is wrong by, and what packets cost.

`python benchmarks/depths.py` flies one day of 40 satellites over three stations at both depths, with a round that waits
for everybody and one that waits for nobody. Every frame in twenty is lost (`--loss`). It compares when each reply
arrives, and the models: these have to be equal bit for bit for as long as replies come in the same order. For each
single transfer it then asks what the fluid says of it, from where packets began it. `--long` flies 72 hours as a fluid
and prints what that costs beside the training itself. All seconds are those of a processor.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedpareto.runs.loop import Experiment
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec

POLICIES = "sync", "asynchronous"
LOSS = 0.05
"""Share of frames that are lost."""
ALLOWED = 0.02
"""By which hours may differ."""
HIDDEN = [150, 150]
"""A model of 100 kB: a fifth of what a contact carries."""
SPEED = 1e6
"""Operations a second: a training takes some minutes."""


def mission(policy: str, depth: str, hours: float, loss: float = LOSS, rounds: int = 10**6) -> Spec:
    """FedAvg on the usual shell, measured at the end only."""
    return Draft(
        {
            "algorithm": "fedavg",
            "problem": {"name": "synthetic", "hidden": HIDDEN},
            "rounds": rounds,
            "hours": hours,
            "policy": policy,
            "evaluate_every": 10**9,
            "devices": {"kind": "equal", "speed": SPEED},
            "engine": {"name": "mission", "depth": depth, "loss": loss, "threads": 1, "chunk": 40},
        }
    ).finish()


class Watched(Experiment):
    """An experiment that keeps its log, and the seconds that its engine took."""

    def __init__(self, spec: Spec) -> None:
        engine = backends.local(spec)
        self.log, self.trained = list[dict[str, Any]](), 0.0
        super().__init__(spec, engine)
        for name in ("exchange", "run_all"):
            setattr(engine, name, self._timed(getattr(engine, name)))

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            began = time.process_time()
            try:
                return work(*given)
            finally:
                self.trained += time.process_time() - began

        return timed

    def _keep_log(self) -> None:
        self.log += self.dispatch.happened()


@dataclass(frozen=True)
class Flown:
    """A mission that is over."""

    trips: list[dict[str, Any]]
    """In the order of their arrivals, each with the number of its satellite's task."""
    models: torch.Tensor
    closed: np.ndarray
    """Seconds at which rounds ended."""
    seconds: float
    """In all …"""
    trained: float
    """… and those of them that the engine took."""
    fleet: Any

    @property
    def rounds(self) -> int:
        """How many there were."""
        return len(self.closed)

    @property
    def order(self) -> list[tuple[int, int]]:
        """Who arrived one after the other, with which task."""
        return [(one["satellite"], one["task"]) for one in self.trips]

    @property
    def arrivals(self) -> dict[tuple[int, int], float]:
        """Hours of each."""
        return {(one["satellite"], one["task"]): one["arrives"] / 3600 for one in self.trips}


def flown(spec: Spec) -> Flown:
    """Fly it."""
    began = time.process_time()
    one = Watched(spec)
    result = one.run()
    seconds = time.process_time() - began
    count, trips = Counter[int](), list[dict[str, Any]]()
    for trip in one.log:
        if trip["what"] == "trip":
            count[trip["satellite"]] += 1
            trips.append(trip | {"task": count[trip["satellite"]]})
    came = sorted(
        (trip for trip in trips if trip["arrives"] is not None and trip["arrives"] <= 3600 * spec.hours),
        key=lambda trip: trip["arrives"],
    )
    models = torch.stack([result.models[0][client] for client in sorted(result.models[0])])
    flight: Any = one.dispatch.flights[0]
    closed = np.array([row["clock"] for row in result.history if row["round"]])
    return Flown(came, models, closed, seconds, one.trained, flight.fleet)


def agreed(one: Flown, other: Flown) -> int:
    """How many replies came in the same order at first."""
    pairs = zip(one.order, other.order, strict=False)
    return next(
        (place for place, (here, there) in enumerate(pairs) if here != there), min(len(one.order), len(other.order))
    )


def apart(fluid: np.ndarray, packets: np.ndarray) -> str:
    """By what share two lists of times differ."""
    found = np.abs(fluid / packets - 1)
    return (
        f"{np.mean(found <= ALLOWED):.1%} within {ALLOWED:.0%}, median {np.median(found):.3%}, "
        f"99 % {np.quantile(found, 0.99):.2%}, largest {found.max():.2%}"
    )


def each_transfer(fluid: Flown, packets: Flown, size: float) -> None:
    """What the fluid says of each transfer, from where packets began it."""
    columns = {
        name: np.array([one[name] for one in packets.trips])
        for name in ("satellite", "left", "received", "ready", "arrives", "task")
    }
    rows, sizes = columns["satellite"], np.full(len(packets.trips), size)
    routes = fluid.fleet.routes
    down = routes.outward(rows, columns["left"], sizes, columns["task"]).ended
    up = routes.homeward(rows, columns["ready"], sizes, columns["task"]).ended
    for name, found, truth, begun in (
        ("tasks", down, columns["received"], columns["left"]),
        ("replies", up, columns["arrives"], columns["ready"]),
    ):
        late = found - truth
        other = np.abs(late) > 600
        print(
            f"  {len(rows)} {name}, each from where packets began it: hours of arrival {apart(found, truth)}; "
            f"{np.count_nonzero(other)} in another contact, the others {late[~other].mean():+.2f} s apart on average, "
            f"at most {np.abs(late[~other]).max():.1f} s; mean from begin to end {np.mean(found - begun):.0f} s and "
            f"{np.mean(truth - begun):.0f} s"
        )


def compare(policy: str, hours: float, loss: float) -> None:
    """Both depths of one policy."""
    fluid, packets = (flown(mission(policy, depth, hours, loss)) for depth in ("fluid", "packets"))
    size = 4.0 * fluid.models.shape[1]
    print(f"{policy}, {hours:g} h, {loss:.0%} of frames lost, models of {size:,.0f} bytes")
    for name, one in (("fluid", fluid), ("packets", packets)):
        beside = one.seconds - one.trained
        flew = f"{one.rounds} rounds, {len(one.trips)} replies"
        print(f"  {name}: {flew}, {beside:.1f} s beside {one.trained:.1f} s of training")
    both = sorted(fluid.arrivals.keys() & packets.arrivals.keys())
    hours_of = [np.array([one.arrivals[key] for key in both]) for one in (fluid, packets)]
    print(f"  the same {len(both)} replies: hours of arrival {apart(*hours_of)}")
    count = min(fluid.rounds, packets.rounds)
    print(f"  {count} rounds: hours of their ends {apart(fluid.closed[:count], packets.closed[:count])}")
    same = agreed(fluid, packets)
    print(f"  {same} replies came in the same order", end="")
    # A round that waits for everybody is the same in any order.
    rounds = min(fluid.rounds, packets.rounds, *([] if policy == "sync" else [same]))
    models = [flown(mission(policy, depth, hours, loss, rounds)).models for depth in ("fluid", "packets")]
    print(f"; models after {rounds} rounds are equal bit for bit: {torch.equal(*models)}")
    each_transfer(fluid, packets, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--long", action="store_true", help="72 hours as a fluid")
    parser.add_argument("--loss", type=float, default=LOSS)
    given = parser.parse_args()
    flown(mission("sync", "packets", 3.0, rounds=1))  # imports and first steps do not count
    for policy in POLICIES:
        if given.long:
            one = flown(mission(policy, "fluid", 72.0))
            beside = one.seconds - one.trained
            print(
                f"{policy}, fluid, 72 h: {one.rounds} rounds, {len(one.trips)} replies; {beside:.1f} s beside "
                f"{one.trained:.1f} s of training"
            )
        else:
            compare(policy, given.hours, given.loss)


if __name__ == "__main__":
    main()
