"""What is the overhead of a federation on Flower? Three nodes on this machine, against Flower's own quickstart.

    python benchmarks/flower.py [--quick] [--json FILE]
    python benchmarks/flower.py --rounds 10 --json flower.json

No client trains: an exchange takes the time of its messages. "fedpareto" is FedAvg on `flower-local`. "Flower" is a
plain ServerApp with Flower's FedAvg strategy and a ClientApp that returns what it receives, on the same SuperLink and
the same SuperNodes, which keep a share of Flower's own pauses (see fedpareto_flower.engine.supernode); "Flower as it
comes" is the same app on SuperNodes with all of them. Flower's rounds are training only, ours measure the model too.

Bytes are those of the messages with all of Flower's own framing, against 4 d in each direction.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from flwr.app import Message as FlowerMessage
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity

from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Learner
from fedpareto.engines.single import Reply, Task, only
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.launch import LocalFederation, program
from fedpareto_flower.engine.link import Address, submit_run
from fedpareto_flower.engine.node import Node
from fedpareto_flower.engine.server import FlowerEngine

NODES, SIZE = 3, 8
MILLION = 1_000_000
DRAFT = {"problem": {"name": "convex", "dimension": SIZE}, "algorithm": "fedavg", "clients": NODES, "rounds": 1000}

QUICKSTART = """\
import time
from pathlib import Path
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()

@client.train()
def train(message, context):
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)

class Timed(FedAvg):
    def configure_train(self, *arguments, **options):
        with Path(PLACE).open("a") as file:
            file.write(f"{time.time()}\\n")
        return super().configure_train(*arguments, **options)

@server.main()
def main(grid, context):
    strategy = Timed(fraction_evaluate=0.0, min_available_nodes=NODES, min_train_nodes=NODES)
    initial = ArrayRecord([np.zeros(SIZE, np.float32)])
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=ROUNDS)
    with Path(PLACE).open("a") as file:
        file.write(f"{time.time()}\\n")
"""


@dataclass(frozen=True)
class NoLearner(Learner):
    """Leaves a model unchanged."""

    def train(self, clients: Clients, model: Any, weights: Any, pull: Any = None) -> Any:
        return model.clone()

    def bytes_per_client(self, clients: Clients) -> int:
        return 1

    def probe(self) -> NoLearner:
        return self


def spec() -> Spec:
    return Draft(DRAFT).finish()


def make_node(config: dict[str, Any]) -> Node:
    """Called in the node's own process."""
    chosen = spec()
    federation = chosen.federation(0)
    return Node(
        federation="benchmark",
        client=config["client"],
        algorithm=chosen.algorithm,
        problem=chosen.problem,
        learner=NoLearner(),
        federations=[only(federation, config["client"])],
        settings=[federation.setting(chosen.problem, chosen.rounds, 1.0)],
        folder=Path(config["folder"]),
    )


# -- time ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def federation(folder: Path) -> Iterator[tuple[LocalFederation, Any]]:
    """SuperLink, SuperNodes and our own workers, and the Grid."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    nodes = [
        {"fedpareto": "flower:make_node", "client": client, "folder": str(folder / str(client))}
        for client in range(NODES)
    ]
    local = LocalFederation(folder / "flower", nodes)
    with local.grid() as grid:
        yield local, grid


def our_rounds(grid: Any, rounds: int) -> list[float]:
    """Seconds of each round."""
    chosen = spec()
    setting = chosen.federation(0).setting(chosen.problem, chosen.rounds, 1.0)
    engine = FlowerEngine(grid, chosen.algorithm, NoLearner(), [setting], "benchmark")
    state, seconds = chosen.algorithm.begin(setting), []
    engine.split_names  # noqa: B018 (waits for the nodes)
    for _ in range(rounds):
        begin = time.perf_counter()
        outcome = engine.run(chosen.algorithm.ask(state), chosen.algorithm.solutions(state))
        assert not outcome.failures, outcome.failures
        state = chosen.algorithm.tell(state, outcome.replies)
        seconds.append(time.perf_counter() - begin)
    return seconds


def flower_rounds(local: LocalFederation, folder: Path, rounds: int) -> list[float]:
    """Seconds of each round of Flower's own app, on SuperLink and SuperNodes that are up and have no other worker."""
    folder.mkdir(parents=True, exist_ok=True)
    stamps = folder / "stamps"
    values = {"PLACE": str(stamps), "NODES": NODES, "SIZE": SIZE, "ROUNDS": rounds}
    constants = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    for number, address in enumerate([local.superlink, *local.runtimes]):
        local.processes.start(
            f"superexec{number}",
            [
                *program("flower-superexec"),
                *("--insecure", "--runtime-api-address", address),
                *("--superexec-auth-secret-file", str(local.secret)),
            ],
        )
    code = {"quickstart.py": constants + QUICKSTART}
    submit_run(Address(local.superlink, local.secret), "quickstart", "server", "client", code)
    while not stamps.exists() or len(stamps.read_text().splitlines()) <= rounds:
        local.processes.check()
        time.sleep(0.5)
    local.processes.stop(*(f"superexec{number}" for number in range(NODES + 1)))
    times = [float(line) for line in stamps.read_text().splitlines()]
    return [after - before for before, after in pairwise(times)]


def with_all_pauses(local: LocalFederation) -> None:
    """The SuperNodes as Flower ships them."""
    for number in range(NODES):
        ours = local._supernode_command(number)
        own = ours[ours.index("--insecure") :]
        local.processes.start(f"supernode{number}", [*program("flower-supernode"), *own])


def seconds_a_round(rounds: int, flower: int) -> dict[str, Any]:
    """Each of the three; the first round of each, a warm-up, is left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with federation(folder) as (local, grid):
            ours = our_rounds(grid, rounds + 1)
            local.processes.stop(*(one for one in list(local.processes.running) if one.startswith("worker")))
            same = flower_rounds(local, folder / "same", flower + 1)
            with_all_pauses(local)
            plain = flower_rounds(local, folder / "plain", flower + 1)
    timed = {"fedpareto": ours, "Flower": same, "Flower as it comes": plain}
    return {who: summary(seconds[1:]) for who, seconds in timed.items()}


def summary(seconds: list[float]) -> dict[str, float]:
    return {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds), "rounds": len(seconds)}


# -- bytes ---------------------------------------------------------------------------------------------------------


def bytes_a_round(size: int) -> dict[str, float]:
    """Of one client: what is sent down (a model to train and to measure) and up, as Flower packs it."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    model = torch.randn(size)
    task = Task(0, 1, {"model": model})
    job = wire.Job(0, 1, 0, (task,), {"model": model}, True)
    down = wire.encode_envelope(wire.Envelope("benchmark", 0, "0" * 32, (job,)))
    reply = Reply(0, 1, {"model": model, "size": torch.tensor(100.0)})
    result = wire.Result(0, (reply,), (), torch.zeros(2, 2), torch.zeros(2, 2))
    up = wire.encode_answer(wire.Answer("benchmark", 0, "0" * 32, (result,)))
    sizes = {way: packed(content) for way, content in (("down", down), ("up", up))}
    return {"d": size, "least": 4 * size, **sizes, "more": max(sizes.values()) / (4 * size) - 1}


def packed(content: Any) -> int:
    message = FlowerMessage(content, 1, "train.exchange")
    return sum(len(one.deflate()) for one in get_all_nested_objects(message).values())


def adult_size() -> int:
    return Draft({"problem": "adult", "algorithm": "fedavg", "clients": 3}).finish().problem.layout.size


# ------------------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="our rounds (default 10)")
    parser.add_argument("--flower-rounds", type=int, default=3, help="Flower's own rounds, which take longer (3)")
    parser.add_argument("--quick", action="store_true", help="bytes only: no process is started")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    chosen = parser.parse_args()
    found: dict[str, Any] = {"bytes": {"a million": bytes_a_round(MILLION), "adult": bytes_a_round(adult_size())}}
    for name, figures in found["bytes"].items():
        print(f"bytes, {name}: d = {figures['d']:,.0f}, down {figures['down']:,.0f}, up {figures['up']:,.0f}, ", end="")
        print(f"{100 * figures['more']:.2f} % more than 4 d")
    if not chosen.quick:
        found["seconds"] = seconds_a_round(chosen.rounds, chosen.flower_rounds)
        for name, figures in found["seconds"].items():
            print(f"seconds a round, {name}: {figures['median']:.2f} ({figures['least']:.2f} to {figures['most']:.2f})")
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
