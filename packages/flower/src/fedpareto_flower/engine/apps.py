"""Flower's view of a node and of a server.

A node lives from one message to the next; the SuperNode's configuration says how it is made, as "module:function". So
this module needs to know neither specs nor data.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedpareto.config.errors import UserError
from fedpareto_flower.engine.node import Node

FACTORY = "fedpareto"
"""The key of a node's configuration that names the function which makes the node; it gets the other entries."""

FindNode = Callable[[Context], Node]


def make_client_app(find: FindNode) -> ClientApp:
    """A client app whose messages go to the node that `find` knows."""
    app = ClientApp()

    @app.train("exchange")
    def exchange(message: Message, context: Context) -> Message:
        return Message(find(context).exchange(message.content), reply_to=message)

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return Message(find(context).hello(message.content), reply_to=message)

    return app


def node_from(config: Mapping[str, Any]) -> Node:
    """The node that a SuperNode's configuration describes; made once in a process."""
    return _made(json.dumps(dict(config), sort_keys=True))


@lru_cache(maxsize=64)
def _made(config: str) -> Node:
    entries = json.loads(config)
    module, colon, name = str(entries.pop(FACTORY, "")).partition(":")
    if not colon:
        raise UserError(f"the node's configuration has no '{FACTORY}': it names the function that makes the node")
    node = getattr(importlib.import_module(module), name)(entries)
    if not isinstance(node, Node):
        raise UserError(f"{module}:{name} makes a {type(node).__name__}, not a Node")
    return node


client_app = make_client_app(lambda context: node_from(context.node_config))
"""The client app that an app folder names."""

server_app = ServerApp()
"""The server app that an app folder names. The server's own process takes the task before Flower starts this app."""


@server_app.main()
def _nobody(grid: Grid, context: Context) -> None:
    raise UserError("a federation of fedpareto is led by its own server; start it with fedpareto, not with flwr alone")
