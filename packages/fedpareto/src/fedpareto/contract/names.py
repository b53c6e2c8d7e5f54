"""Clients by name: what a user types, and which client is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedpareto.config.errors import BadPreference, UnknownName, UserError

OTHERS = "*"
"""All clients that are not named."""


def client_of(text: str, names: Sequence[str], clients: Sequence[int]) -> int:
    """The client of this name, one of whose values it is where several share a client, or of this number.

    `names[i]` is what client i is called, such as its branch; empty where clients are only numbered. The column may
    stand before the name, as in "branch:north".
    """
    whole = text.strip()
    _, colon, value = whole.partition(":")
    called = {client: names[client] for client in clients if client < len(names)}
    for wanted in (whole, value.strip() if colon else whole):
        found = [client for client, name in called.items() if name == wanted]
        found = found or [client for client, name in called.items() if wanted in name.split(", ")]
        if len(found) > 1 or (found and not colon and wanted.isdecimal() and int(wanted) in {*clients} - {*found}):
            raise UserError(f"'{wanted}' is not one client alone: for client number n write cn, for a name COLUMN:NAME")
        if found:
            return found[0]
    number = whole.removeprefix("client").removeprefix("c").strip()
    if number.isdecimal() and int(number) in clients:
        return int(number)
    if names or not clients:
        raise UnknownName("client", whole, [names[client] for client in clients if client < len(names)])
    raise UserError(f"there is no client {whole}; clients here have numbers, from {min(clients)} to {max(clients)}")


def by_client(given: Mapping[str, Any], names: Sequence[str], clients: int) -> list[Any]:
    """List for each client what it is given, of what is given by name; the rest has what OTHERS have."""
    found: dict[int, Any] = {}
    for text, value in given.items():
        if text.strip() == OTHERS:
            continue
        client = client_of(text, names, range(clients))
        if client in found:
            raise BadPreference(f"preferences: client {client} is given two, the second as '{text.strip()}'")
        found[client] = value
    rest = next((value for text, value in given.items() if text.strip() == OTHERS), None)
    lacking = [client for client in range(clients) if client not in found]
    if lacking and rest is None:
        whose = names[lacking[0]] if names else f"client {lacking[0]}"
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise BadPreference(f"preferences: {whose}{more} has none; give all others one by {OTHERS}=…")
    return [found.get(client, rest) for client in range(clients)]
