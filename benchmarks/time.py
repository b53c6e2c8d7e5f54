"""What asynchrony costs: the same number of updates of 1,000 clients, waiting for all of them or for few.

Both are on the local engine, in turns on the same machine, in CPU time: `python benchmarks/time.py`. A round without
waiting has fewer replies, so more of the server's work and of the simulated clock's comes to each update; the stack is
kept. With `--rows 35` clients train for a tenth of a millisecond, and that work is most of it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

from engine import LEARNER, ROWS, Tabular
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.clock.devices import Devices
from fedpareto.clock.policy import Policy
from fedpareto.engines.options import LocalOptions
from fedpareto.runs.loop import Experiment
from fedpareto.spec import backends
from fedpareto.spec.spec import Spec

POLICIES: dict[str, dict[str, Any]] = {
    "sync": {"kind": "sync"},
    "sync, 10 take part": {"kind": "sync"},
    "sync, 1 takes part": {"kind": "sync"},
    "buffered, K = 100": {"kind": "buffered", "buffer": 100},
    "buffered, K = 100, 200 at work": {"kind": "buffered", "buffer": 100, "concurrency": 200},
    "buffered, K = 10": {"kind": "buffered", "buffer": 10},
    "asynchronous": {"kind": "asynchronous"},
    "asynchronous, 200 at work": {"kind": "asynchronous", "concurrency": 200},
    "tiers": {"kind": "tiers"},
}


PARTICIPATION = {"sync, 10 take part": 0.01, "sync, 1 takes part": 0.001}
"""Of all clients; of the others everybody."""


def experiment(policy: dict[str, Any], clients: int, rows: int, participation: float = 1.0) -> Experiment:
    """A run of FedAvg on devices of three tiers that is never evaluated before its end."""
    spec = Spec(
        FedAvg(),
        Tabular(rows=rows),
        replace(LEARNER, lr=0.001),  # so that nothing diverges in thousands of rounds
        clients=clients,
        rounds=10**6,
        participation=participation,
        evaluate_every=10**9,
        engine=LocalOptions(threads=1, chunk=64),
        devices=Devices("tiers"),
        policy=Policy(**policy),
    )
    return Experiment(spec, backends.local(spec))


def milliseconds_an_update(one: Experiment, updates: int) -> float:
    """After a round that does not count: in it the first stack of everybody is computed.

    Rows of the record are left to be written when a run writes them: it is read only when there may be enough replies.
    """
    while one.recorder.history == [] or one.recorder.history[-1]["round"] < 1:
        one._one_round(None)
    known, done, rounds, begin = len(one.recorder.history), 0, 1, time.process_time()
    while done < updates:
        for _ in range(rounds):
            one._one_round(None)
        rows = one.recorder.history[known:]
        done = sum(row["replies"] for row in rows)
        rounds = max(1, (updates - done) * len(rows) // max(done, 1))
    return 1000 * (time.process_time() - begin) / done


def main() -> None:
    """Prints milliseconds an update, and how many times that of waiting for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--rows", type=int, default=ROWS, help="of each client (default %(default)s)")
    given = parser.parse_args()
    runs = {
        name: experiment(policy, given.clients, given.rows, PARTICIPATION.get(name, 1.0))
        for name, policy in POLICIES.items()
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.tries):
        for name, one in runs.items():
            with one.engine.threads():  # as in a whole run
                times[name].append(milliseconds_an_update(one, given.updates))
    least = min(times["sync"])
    for name, of_run in times.items():
        print(f"{name:32} {min(of_run):8.3f} ms   {min(of_run) / least:5.2f} times")


if __name__ == "__main__":
    main()
