"""How the tests' node processes make their node: from the draft of a spec in the configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

from keeper import Keeper
from memory_federation import federations_of, node_of

from fedpareto.contract.federation import Federation
from fedpareto.engines.single import only
from fedpareto.spec.draft import Draft
from fedpareto_flower.engine.apps import node_from
from fedpareto_flower.engine.node import Node


def make(config):
    return node_of(spec_of(config), config["client"], Path(config["folder"]))


def make_mistaken(config):
    """A node that holds what another client holds, of this draft or of another one."""
    node = make(config)
    held = federations(config.get("held_draft", config["draft"]))
    theirs = [only(one, config["held_client"]) for one in held]
    node.federations = [Federation(one.seed, (node.client,), one.splits, one.preferences) for one in theirs]
    return node


def make_keeper(config):
    """A node whose algorithm has private tensors, and perhaps leaks."""
    return node_of(keeper_spec(spec_of(config), tuple(config["leaks"])), config["client"], Path(config["folder"]))


def keeper_spec(spec, leaks):
    return replace(spec, algorithm=Keeper(leaks=leaks))


def spec_of(config):
    return Draft(json.loads(config["draft"])).finish()


@lru_cache(maxsize=4)
def federations(draft):
    return federations_of(Draft(json.loads(draft)).finish())


class Player(Node):
    """A node whose part is in a file: one process plays in many tests, and imports torch only once."""

    engine = SimpleNamespace(split_names=())

    def __init__(self, client, part):
        self.client, self.part = client, part

    def hello(self, question):
        self.played = node_from(json.loads(self.part.read_text()))
        return self.played.hello(question)

    def exchange(self, content):
        return self.played.exchange(content)


def make_player(config):
    return Player(config["client"], Path(config["part"]))
