"""Room of a cluster for workers."""

from __future__ import annotations

from typing import Any

from fedpareto.config.errors import UserError
from fedpareto_ray.options import RayOptions


def places(options: RayOptions) -> int:
    """Number of workers that there is room for on all machines of the cluster, if nobody else uses them."""
    machines = [node["Resources"] for node in _machines()]
    if options.device == "cuda":
        return sum(int(one.get("GPU", 0)) for one in machines)
    return sum(int(one.get("CPU", 0)) // options.cpus for one in machines)


def _machines() -> list[dict[str, Any]]:
    import ray

    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in known if node["Alive"]]


def workers_here(count: int) -> int:
    """Number of workers that share a machine, at most, if so many are spread."""
    return -(-count // max(len(_machines()), 1))


def workers_for(options: RayOptions, clients: int, usual: int = 0) -> int:
    """Number of workers of a run; `usual` is how many it had before, if it is resumed."""
    room = places(options)
    if options.workers > room or not room:
        each = "a GPU" if options.device == "cuda" else "a CPU" if options.cpus == 1 else f"{options.cpus} CPUs"
        wanted = f"workers is {options.workers}" if options.workers else "there is no worker"
        raise UserError(f"engine: {wanted}, but the cluster has room for {room}, with {each} for each of them")
    return min(options.workers or usual or room, room, clients)
