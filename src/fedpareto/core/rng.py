"""Counter-based randomness: a stream is a function of client and purpose, never of the other clients.

Every stream is Philox keyed by (seed, purpose) with its counter placed at (client, lane, round). So a client draws
the same numbers alone on a node, in a stack of a thousand, in any chunk and in any order.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

SERVER = -1
"""The server's own client number in a stream's address."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Address:
    """Whose stream, and when."""

    seed: int
    client: int = SERVER
    round: int = 0
    lane: int = 0


def generator(address: Address, purpose: str) -> np.random.Generator:
    """A fresh stream for one purpose ("batches", "participants", …) of one client in one round."""
    return np.random.Generator(_philox(address, purpose))


def generators(addresses: Sequence[Address], purpose: str) -> Iterator[np.random.Generator]:
    """The streams of many clients in turn. Each is valid until the next is taken: one generator is moved along,

    which costs a tenth of creating one anew.
    """
    if not addresses:
        return
    bits = _philox(addresses[0], purpose)
    moving = np.random.Generator(bits)
    for address in addresses:
        bits.state = _philox_state(bits, address, purpose)
        yield moving


def torch_generator(address: Address, purpose: str, device: str = "cpu") -> torch.Generator:
    """The same address as a torch generator, for initialising models."""
    seed = int(generator(address, purpose).integers(0, 2**63))
    return torch.Generator(device=device).manual_seed(seed)


def _key(address: Address, purpose: str) -> tuple[int, int]:
    return address.seed & _MASK, zlib.crc32(purpose.encode())


def _counter(address: Address) -> tuple[int, int, int, int]:
    # The lowest word counts the numbers drawn, so streams of different addresses never overlap.
    return 0, address.client & _MASK, address.lane & _MASK, address.round & _MASK


def _philox(address: Address, purpose: str) -> np.random.Philox:
    return np.random.Philox(
        key=np.array(_key(address, purpose), dtype=np.uint64),
        counter=np.array(_counter(address), dtype=np.uint64),
    )


def _philox_state(bits: np.random.Philox, address: Address, purpose: str) -> Any:
    state: dict[str, Any] = dict(bits.state)
    state["state"] = {
        "counter": np.array(_counter(address), dtype=np.uint64),
        "key": np.array(_key(address, purpose), dtype=np.uint64),
    }
    # A fresh stream has nothing left over from an earlier draw.
    state.update(buffer_pos=4, has_uint32=0, uinteger=0)
    return state
