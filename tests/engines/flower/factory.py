"""How the tests' node processes make their node: from the draft of a spec in the configuration."""

from __future__ import annotations

import json
from pathlib import Path

from memory_federation import node_of

from fedpareto.experiments.spec import Draft


def make(config):
    return node_of(Draft(json.loads(config["draft"])).finish(), config["client"], Path(config["folder"]))
