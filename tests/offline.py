"""No test reaches another machine: whoever imports this stays here, and so do its forks."""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest

NOWHERE = "http://127.0.0.1:9"
"""A proxy that is not there: processes that tests start reach nobody by HTTP, but for this machine."""
OWN_NAMES = {"", "localhost", "localhost.localdomain", "ip6-localhost", "0.0.0.0", "::", socket.gethostname()}
REACHING_OUT = frozenset({"urllib.Request", "socket.getaddrinfo", "socket.connect"})


def is_this_machine(host: str | bytes | None) -> bool:
    """Whether a connection to the host stays here."""
    name = host.decode() if isinstance(host, bytes) else host or ""
    try:
        return name in OWN_NAMES or ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def stay_here(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: whatever would reach another machine from a test ends the test.

    Python calls it for every file, every import and every `id` as well: those are let through at once.
    """
    if event not in REACHING_OUT:
        return
    host: str | bytes | None = "localhost"
    if event == "urllib.Request":
        host = urlsplit(arguments[0]).hostname
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[0].type == socket.SOCK_STREAM:
        host = arguments[1][0]
    if not is_this_machine(host):
        text = host.decode() if isinstance(host, bytes) else host
        pytest.fail(
            f"a test must not reach {text}: what reads a published data set is marked needs_data, and nothing else "
            "needs a network"
        )


sys.addaudithook(stay_here)
