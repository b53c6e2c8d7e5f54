"""What does a federation on Ray gain, and what does it cost?

    python benchmarks/cluster.py [--quick] [--json FILE] [--device cuda]

On CPUs: a round of FedAvg (ask + run + tell; every client one epoch of 1,000 rows in batches of 128, an MLP 64-32
with 12 inputs) with one worker on one core and with two on two, in turns; an exchange in which no client does anything,
with 2 and with 8 workers; and the bytes of a round with 100,000 clients. With `--device cuda`: the same round on a GPU,
by a worker of Ray and by the local engine, in turns. Times are the median of several rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scale import Idle, rounds_of

from engine import LEARNER, Tabular
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.contract.federation import Federation, setting_of
from fedpareto.contract.messages import size_of
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto_ray.cluster import connected
from fedpareto_ray.crew import Crew
from fedpareto_ray.engine import RayEngine
from fedpareto_ray.options import RayOptions
from fedpareto_ray.packing import Shards

CLIENTS, MANY, CHUNK = 1000, 100_000, 64
ALGORITHMS = {"fedavg": FedAvg(), "idle": Idle()}
MAKE = "cluster:make_shard"
"""How a worker finds `make_shard`: Ray's workers have the folder of the driver's script in their path."""


def local(given: dict[str, Any], places: tuple[int, int], chosen: Choices | None) -> LocalEngine:
    """The local engine over some of the clients."""
    problem, clients = Tabular(rows=given["rows"]), given["clients"]
    whole = Federation.create(problem, clients, 0, "uniform")
    setting = whole.setting(problem, rounds=10_000)
    algorithm, options = ALGORITHMS[given["algorithm"]], LocalOptions(device=given["device"])
    part = whole.only(np.arange(*places))
    return LocalEngine(algorithm, problem, LEARNER, [part], [setting], options, choices=chosen)


def make_shard(given: dict[str, Any]) -> tuple[Callable[[Choices | None], LocalEngine], list[Any]]:
    """A worker's part; called in its process."""
    return lambda chosen: local(given, given["places"], chosen), []


def on_ray(crew: Crew, given: dict[str, Any], chunk: int) -> RayEngine:
    """The same on workers."""
    problem, clients = Tabular(rows=given["rows"]), given["clients"]
    setting = setting_of(problem, range(clients), 0, 10_000)
    shards = Shards(setting.clients, len(crew))
    parts = [given | {"places": shards.places(shard)} for shard in range(len(crew))]
    begun = crew.begin(MAKE, parts, {"threads": 1, "chunk": chunk})
    options = RayOptions(device=given["device"])
    algorithm = ALGORITHMS[given["algorithm"]]
    return RayEngine(crew, shards, algorithm, [setting], options, begun["split_names"], begun["chosen"])


def in_turns(works: dict[str, Callable[[], None]], tries: int) -> dict[str, float]:
    """Milliseconds of each, the median of several tries after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for attempt in range(tries + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if attempt:
                times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in times.items()}


def speed_up(clients: int, tries: int) -> dict[str, float]:
    """One worker against two, which are there at the same time and work in turns."""
    given = {"clients": clients, "rows": 1000, "algorithm": "fedavg", "device": "cpu"}
    crews = {f"round_ms_{count}": Crew(RayOptions(), count) for count in (1, 2)}
    found = in_turns({name: rounds_of(on_ray(crew, given, CHUNK)) for name, crew in crews.items()}, tries)
    for crew in crews.values():
        crew.dismiss()
    return found | {"speed_up": found["round_ms_1"] / found["round_ms_2"]}


def exchange(workers: int, tries: int) -> dict[str, float]:
    """Milliseconds of an exchange in which no client does anything; and of a round, with the sum of what they send."""
    crew = Crew(RayOptions(), workers)
    engine = on_ray(crew, {"clients": workers, "rows": 1, "algorithm": "idle", "device": "cpu"}, CHUNK)
    tasks = engine.algorithm.ask(engine.algorithm.begin(engine.settings[0]))
    works = {"exchange_ms": lambda: engine.run(tasks) and None, "idle_round_ms": rounds_of(engine)}
    found = in_turns(works, tries)
    crew.dismiss()
    return {f"{name}_{workers}": value for name, value in found.items()}


def travelled(clients: int) -> dict[str, float]:
    """Bytes of a round of FedAvg with two workers, beside those of one model."""
    crew = Crew(RayOptions(), 2)
    engine = on_ray(crew, {"clients": clients, "rows": 1, "algorithm": "idle", "device": "cpu"}, 1024)
    one = rounds_of(engine)
    one()
    before = crew.down, crew.up
    one()
    model = size_of({"model": engine.settings[0].initial})
    found = {"clients": clients, "model": model, "down": crew.down - before[0], "up": crew.up - before[1]}
    crew.dismiss()
    return {f"bytes_{name}": value for name, value in found.items()}


def on_gpu(clients: int, tries: int) -> dict[str, float]:
    """One GPU: a worker of Ray against the local engine."""
    given = {"clients": clients, "rows": 1000, "algorithm": "fedavg", "device": "cuda"}
    crew = Crew(RayOptions(device="cuda"), 1)
    works = {
        "gpu_ms_local": rounds_of(local(given, (0, clients), Choices(1, clients))),
        "gpu_ms_ray": rounds_of(on_ray(crew, given, clients)),
    }
    found = in_turns(works, tries)
    crew.dismiss()
    return found | {"gpu_ratio": found["gpu_ms_ray"] / found["gpu_ms_local"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few clients and rounds, to see that it works")
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = parser.parse_args()
    tries = 2 if options.quick else 7
    found: dict[str, float] = {}
    with connected(what="benchmarks/cluster.py", cpus=8):
        if options.device == "cuda":
            for clients in (100,) if options.quick else (500, 5000):
                found |= {f"{name}_{clients}": value for name, value in on_gpu(clients, 3 * tries).items()}
        else:
            found |= speed_up(100 if options.quick else CLIENTS, tries)
            found |= exchange(2, 20 * tries) | exchange(8, 20 * tries)
            found |= travelled(1000 if options.quick else MANY)
    for name, value in found.items():
        print(f"{name:20} {value:,.2f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
