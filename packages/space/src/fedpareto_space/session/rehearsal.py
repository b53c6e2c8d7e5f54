"""Figure 6.2 of the thesis and a short federation, end to end on this machine, over links that lose data.

First a model is trained on the ground, packed as NNEF, sent over CFDP, unpacked and run. Then clients learn together by
the protocol, over the same kind of link. What came of it is one page.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from torch import Tensor

from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto.contract.problem import Problem
from fedpareto.engines.options import LocalOptions
from fedpareto.networks.mlp import MLP
from fedpareto.runs.runner import start
from fedpareto.spec import backends
from fedpareto.spec.spec import Spec
from fedpareto_space.formats import nnef
from fedpareto_space.formats.network import Network
from fedpareto_space.formats.running import Model
from fedpareto_space.formats.tracing import traced
from fedpareto_space.links.cfdp_network import CfdpNetwork
from fedpareto_space.links.channel import Channel
from fedpareto_space.session.agreement import FIRST_CLIENT, SERVER, terms_of
from fedpareto_space.session.drive import Finished, Plan, Simulation, result_digest
from fedpareto_space.session.events import Ask, Exchange, Send
from fedpareto_space.session.host import Note
from fedpareto_space.session.learning import arrays_of
from fedpareto_space.session.matrix import Case, cases
from fedpareto_space.wire import messages, rows
from fedpareto_space.wire.terms import Terms


@dataclass(frozen=True)
class Delivered:
    """The first case study: a whole model from the ground to a satellite."""

    size: int
    """Bytes of the packed model …"""
    sent: int
    """… and of all that was sent for it, with headers and repetitions."""
    seconds: float
    """Simulated."""
    packets: int
    lost: int
    digest: str
    identical: bool
    """The bytes that arrived are those that were sent."""
    rows: int
    predictions_equal: bool
    """The model that arrived says the same of every row as the one on the ground, bit for bit."""
    difference: float
    """The largest difference to the network that was trained, which has not travelled."""


@dataclass(frozen=True)
class Federated:
    """The second: clients that learn together by the protocol."""

    algorithm: str
    clients: int
    rounds: int
    agreement: str
    seconds: float
    """Simulated."""
    sent: int
    """Bytes of all nodes, with headers and repetitions."""
    messages: Mapping[str, int]
    digest: str | None
    reference: str
    equal: bool


@dataclass(frozen=True)
class Rehearsal:
    """Results of a whole rehearsal."""

    loss: float
    rate: float
    delivered: Delivered
    federated: Federated
    faults: Mapping[str, bool] = field(default_factory=dict)
    """Faults of the failure matrix, if they were tried: true for each that ended as agreed."""

    @property
    def good(self) -> bool:
        model = self.delivered.identical and self.delivered.predictions_equal
        return model and self.federated.equal and all(self.faults.values())


ROWS = 64
"""Rows of data on which the satellite's predictions are compared with those on the ground."""
RESULT, LOG, PAGE = "rehearsal.json", "log.jsonl", "index.html"
MESSAGES = "messages"
"""The first message of each type, for `fedpareto space inspect`."""
COLOURS = {"trains": "#4477aa", "asks": "#228833", "adopted": "#ccbb44", "a fault": "#ee6677"}
"""Safe for colour-blind readers."""


@dataclass
class Rehearsing:
    """One that is going on."""

    spec: Spec
    folder: Path
    loss: float = 0.1
    rate: float = 64_000.0
    codec: str = "float32-delta"
    with_faults: bool = True
    on_step: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.spec = replace(self.spec, engine=LocalOptions(threads=1, chunk=1))
        self.codec = str(Codec.parse(self.codec))
        self.channel = Channel(rate=self.rate, loss=self.loss, delay=0.01)
        self.log: list[Note] = []

    @property
    def steps(self) -> int:
        return 3 + self.spec.rounds + 1 + (len(cases()) if self.with_faults else 0)

    def run(self) -> Rehearsal:
        """Everything, kept in the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        delivered = self.deliver()
        federated, finished = self.federate()
        faults = self.fail() if self.with_faults else {}
        found = Rehearsal(self.loss, self.rate, delivered, federated, faults)
        lines = [json.dumps(asdict(note)) for note in self.log]
        (self.folder / LOG).write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self.folder / RESULT).write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
        (self.folder / PAGE).write_text(page(found, finished), encoding="utf-8")
        return found

    # -- figure 6.2 ------------------------------------------------------------------------------------------------

    def deliver(self) -> Delivered:
        """Train, pack, send, unpack, run."""
        result = start(self.spec)
        model = next(iter(result.models[0].values()))
        network, x = network_of(self.spec.problem, model), inputs_of(self.spec)
        self.on_step()
        here, there = self.folder / "ground", self.folder / "satellite"
        nnef.write(traced(network, x), network.tensors, here, len(x))
        data = nnef.packed(here)
        arrived, link = self._carried(data)
        self.on_step()
        nnef.unpacked(arrived, there, "the model that arrived")
        with torch.no_grad():
            ours, theirs, trained = Model(here)(x), Model(there)(x), network(x)
        self.on_step()
        return Delivered(
            size=len(data),
            digest=hashlib.sha256(arrived).hexdigest(),
            identical=arrived == data,
            rows=len(x),
            predictions_equal=same_bits(ours, theirs),
            difference=float((theirs.reshape(-1) - trained.reshape(-1)).abs().max()),
            **link,
        )

    def _carried(self, data: bytes) -> tuple[bytes, dict[str, Any]]:
        network = CfdpNetwork(self.channel, seed=self.spec.seeds[0])
        ground, satellite = network.transport(SERVER), network.transport(FIRST_CLIENT)
        ground.send(FIRST_CLIENT, data, 0.0)
        now, arrived = 0.0, list(satellite.poll(0.0))
        while not arrived:
            until = network.next_event()
            if until is None:
                raise UserError("the model did not arrive; take a channel with less loss")
            now = network.advance(until)
            arrived = satellite.poll(now)
        sent, got = ground.traffic, satellite.traffic
        link = {"sent": sent.bytes_sent + got.bytes_sent, "seconds": arrived[0].at, "packets": sent.packets_sent}
        return arrived[0].data, link | {"lost": sent.packets_sent - got.packets_received}

    # -- a federation ----------------------------------------------------------------------------------------------

    def terms(self) -> Terms:
        terms = terms_of(self.spec)
        content = terms.format.content
        agreed = rows.Format(content, self.codec, error_feedback=True, objectives=terms.format.objectives)
        return replace(terms, format=agreed)

    def federate(self) -> tuple[Federated, Finished]:
        """A session over the link, and what the local engine makes of the same run."""
        counts: Counter[str] = Counter()
        folder = self.folder / MESSAGES
        folder.mkdir(exist_ok=True)

        def sent(node: int, effect: Send, now: float) -> None:
            name = messages.decode(effect.data).type.name
            if not counts[name]:
                (folder / f"{name.lower()}.flp").write_bytes(effect.data)
            counts[name] += 1

        def asked(exchange: Exchange, now: float) -> None:
            if exchange.over or exchange.round > len(rounds):
                rounds.append(exchange.round)
                self.on_step()

        rounds: list[int] = []
        plan = Plan(self.spec, self.terms())
        simulation = Simulation(plan, CfdpNetwork(self.channel, seed=1), on_exchange=asked)
        for host in simulation.hosts:
            host.on_send = sent
        finished = simulation.run()
        self.log += finished.log
        found, reference = finished.digest, reference_digest(self.spec) if Codec.parse(self.codec).lossless else None
        federated = Federated(
            algorithm=self.spec.algorithm.name,
            clients=self.spec.clients,
            rounds=self.spec.rounds,
            agreement=plan.terms.id.hex(),
            seconds=finished.seconds,
            sent=sum(host.transport.traffic.bytes_sent for host in simulation.hosts),
            messages=dict(counts),
            digest=None if found is None else found.hex(),
            reference="" if reference is None else reference.hex(),
            equal=found is not None and reference in (None, found),
        )
        return federated, finished

    # -- the failure matrix ----------------------------------------------------------------------------------------

    def fail(self) -> dict[str, bool]:
        """Each of its faults, in a session of two clients."""
        spec = replace(self.spec, clients=2, rounds=3)
        reference = reference_digest(spec)
        found = {}
        for case in cases():
            finished = Simulation(Plan(spec, case.terms(spec)), mishaps=case.mishaps).run()
            self.log += [replace(note, detail=f"[{case.name}] {note.detail}".strip()) for note in finished.log]
            found[case.name] = as_agreed(case, finished, reference)
            self.on_step()
        return found


def as_agreed(case: Case, finished: Finished, reference: bytes) -> bool:
    told = {(note.node, note.what, note.action) for note in finished.log}
    ends = all(
        node in case.silent or reason == case.ends.get(node, "done") for node, reason in finished.reasons.items()
    )
    return case.told <= told and ends and (finished.digest == reference) == case.same


def reference_digest(spec: Spec) -> bytes:
    engine = backends.local(spec)
    with engine.threads():
        state = spec.algorithm.begin(engine.settings[0])
        while state.round < spec.rounds:
            state = spec.algorithm.tell(state, engine.run(spec.algorithm.ask(state)).replies)
        solutions = spec.algorithm.solutions(state)
    asks = tuple(Ask(client, state.round, "", 0, arrays_of(solutions[client])) for client in solutions)
    return result_digest(Exchange(0, state.round, asks, over=True))


# -- models --------------------------------------------------------------------------------------------------------


def network_of(problem: Problem, model: Tensor) -> Network:
    """The network of a problem's clients, from its own code or from its layout."""
    if type(problem).answers is not Problem.answers:
        return Network.of_problem(problem, model)
    layout = problem.layout.dense
    weights = [shape for name, shape in zip(layout.names, layout.shapes, strict=True) if name.endswith(".weight")]
    flat = bool(weights) and all(len(shape) == 2 for shape in weights)
    mlp = MLP(weights[0][0], tuple(shape[1] for shape in weights[:-1]), weights[-1][1]) if flat else None
    if mlp is None or mlp.layout != layout:
        raise UserError(f"{problem.name} has no network that could be sent; synthetic has one, for example")
    return Network(mlp, layout, problem.layout.to_dense(model))


def inputs_of(spec: Spec) -> Tensor:
    """Rows that were not trained on, of the first client."""
    splits = spec.federation(spec.seeds[0]).splits
    columns = splits["test" if "test" in splits else next(iter(splits))].of_client(0)
    return next(iter(columns.values()))[:ROWS].float()


def same_bits(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and np.array_equal(first.numpy().view(np.uint32), second.numpy().view(np.uint32))


def page(found: Rehearsal, finished: Finished) -> str:
    """The whole page; it needs no other file."""
    loader = PackageLoader("fedpareto_space", "session")
    made = Environment(autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    nodes: dict[int, list[Note]] = {node: [] for node in sorted({note.node for note in finished.log})}
    for note in finished.log:
        if note.what != "left":
            nodes[note.node].append(note)
    template, seconds = made.get_template("rehearsal.html"), max(finished.seconds, 1e-9)
    return template.render(found=found, nodes=nodes, seconds=seconds, colours=COLOURS).lstrip()
