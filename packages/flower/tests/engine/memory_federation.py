"""A federation in memory: real nodes, real Flower messages, and a Grid that only hands them over."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedpareto.codecs import Codec
from fedpareto.engines.coding import Coding
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.single import only
from fedpareto.spec.draft import Draft
from fedpareto_flower.engine.node import Node
from fedpareto_flower.engine.options import FlowerOptions
from fedpareto_flower.engine.packing import unpacked
from fedpareto_flower.engine.post import HELLO
from fedpareto_flower.engine.server import FlowerEngine

QUICK = FlowerOptions(join_timeout=0.2, timeout=0.3, hello_timeout=0.2, poll=0.001, retries=0, forgiveness=0.0)
HOSTILE = 899
"""The node of client 1."""


DRAFT = {
    "problem": {"name": "synthetic", "hidden": [8], "server_rows": 50},
    "learner": {"epochs": 1, "batch_size": 128},
    "clients": 3,
    "rounds": 3,
}


FEW_ROWS = DRAFT | {"problem": {**DRAFT["problem"], "rows": 1500}}


def small(algorithm, **values):
    """A spec of 3 clients that runs in a moment."""
    return Draft(FEW_ROWS | {"algorithm": algorithm} | values).finish()


@lru_cache(maxsize=8)
def federations_of(spec):
    """Made once for the server, all nodes and the engine that they are compared with; nobody changes them."""
    return tuple(spec.federation(seed) for seed in spec.seeds)


def settings_of(spec):
    return [one.setting(spec.problem, spec.rounds, spec.participation) for one in federations_of(spec)]


def node_of(spec, client: int, folder: Path, **changes) -> Node:
    values = {
        "federation": "test",
        "client": client,
        "algorithm": spec.algorithm,
        "problem": spec.problem,
        "learner": spec.learner,
        "federations": [only(one, client) for one in federations_of(spec)],
        "settings": settings_of(spec),
        "folder": folder / f"node{client}",
        "options": spec.engine,
        "faults": spec.faults,
        "codec": Codec.parse(spec.codec),
    }
    return Node(**values | changes)


class MemoryGrid(Grid):
    """Delivers at once. `nodes` may be changed at any time; `tamper` may replace, drop or break an answer."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes, self.replies, self.seen = nodes, {}, []
        self.tamper = lambda node, message, reply: reply
        self._count = 0

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        return [self._deliver(message) for message in messages]

    def pull_messages(self, message_ids):
        found = [self.replies.pop(one) for one in message_ids if one in self.replies]
        for reply in found:
            if isinstance(reply, Exception):
                raise reply
        return found

    def _deliver(self, message):
        self._count += 1
        message.metadata.__dict__["_message_id"] = f"message {self._count}"
        message.content = unpacked(message.content)
        node = message.metadata.dst_node_id
        self.seen.append(message)
        reply = self.tamper(node, message, self._answer(node, message))
        if reply is not None:
            self.seen.append(reply)
            self.replies[message.metadata.message_id] = reply
        return message.metadata.message_id

    def _answer(self, number, message):
        if number not in self.nodes:
            return None
        node = self.nodes[number]
        try:
            work = node.hello if message.metadata.message_type == HELLO else node.answer
            return Message(work(message.content), reply_to=message)
        except Exception as problem:
            return Message(Error(2, f"{type(problem)}:<'{problem}'>"), reply_to=message)

    def set_run(self, run):
        raise NotImplementedError

    run = property(lambda self: None)

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError


def federation_of(spec, folder, options=QUICK, **changes):
    """A server and its grid, with one node for every client; node ids are not in the clients' order."""
    grid = MemoryGrid({900 - client: node_of(spec, client, folder) for client in range(spec.clients)})
    engine = FlowerEngine(
        grid,
        spec.algorithm,
        spec.learner,
        settings_of(spec),
        "test",
        options=spec.engine,
        flower=options,
        quorum=spec.quorum,
        waits=spec.policy.waits,
        codec=Codec.parse(spec.codec),
    )
    return replace(engine, **changes), grid


def local_engine(spec, chunk=None):
    return LocalEngine(
        spec.algorithm,
        spec.problem,
        spec.learner,
        federations_of(spec),
        settings_of(spec),
        options=spec.engine,
        faults=spec.faults,
        quorum=spec.quorum,
        choices=Choices(1, chunk or spec.clients),
        coding=Coding(Codec.parse(spec.codec)),
    )


def play(spec, engine, rounds=None, states=None):
    """The loop of the runner without its record: the states after `rounds` rounds, and what was measured."""
    algorithm = spec.algorithm
    states = states or [algorithm.begin(setting) for setting in engine.settings]
    measured = []
    while min(state.round for state in states) < (rounds or spec.rounds):
        before = min(state.round for state in states)
        tasks = [algorithm.ask(state) if state.round == before else [] for state in states]
        outcomes = engine.run_all(tasks, [algorithm.solutions(state) for state in states])
        measured += [outcome.evaluations for outcome in outcomes]
        states = [
            algorithm.tell(state, outcome.replies) if state.round == before else state
            for state, outcome in zip(states, outcomes, strict=True)
        ]
    final = engine.run_all([[] for _ in states], [algorithm.solutions(state) for state in states])
    return states, [*measured, *(outcome.evaluations for outcome in final)]


def one_exchange(spec, engine, done=0):
    """The exchange of the round after `done` rounds."""
    state = replace(spec.algorithm.begin(engine.settings[0]), round=done)
    return engine.run(spec.algorithm.ask(state), spec.algorithm.solutions(state))
