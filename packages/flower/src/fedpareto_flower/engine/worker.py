"""A node's own process: makes the node once, then answers its SuperNode's messages until its parent is gone.

A federation on one machine may have several nodes in one such process, which saves memory.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpareto_flower.engine.apps import make_client_app, node_from
from fedpareto_flower.engine.link import Address, serve

log = logging.getLogger("fedpareto.flower")


def main(plan: Path) -> None:
    """Serves the nodes of a plan: `{"secret": file, "nodes": {"host:port of the SuperNode": how it is made}}`."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    log.setLevel(logging.INFO)
    parent = os.getppid()
    entries = json.loads(plan.read_text(encoding="utf-8"))
    secret = Path(entries["secret"])
    apps = {Address(runtime, secret): _app(config) for runtime, config in entries["nodes"].items()}
    serve(apps, lambda: os.getppid() == parent)


def _app(config: Mapping[str, Any]) -> Any:
    node = node_from(config)
    log.info("client %d is ready; its data has the parts %s", node.client, ", ".join(node.engine.split_names))
    return make_client_app(lambda context: node)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
