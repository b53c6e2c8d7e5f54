"""Copies of messages and states, to see whether something changed them in place."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from fedpareto.contract.algorithm import State
from fedpareto.contract.messages import Message, Tasks
from fedpareto.record.checkpoint import Checkpoint


def clones(message: Message) -> Message:
    return {name: tensor.clone() for name, tensor in message.items()}


def equal(one: Message, other: Message) -> bool:
    """True if two messages hold the same bits."""
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def copied(tasks: Tasks) -> Tasks:
    return replace(tasks, shared=clones(tasks.shared), own=clones(tasks.own))


def image(state: State) -> Checkpoint:
    """A snapshot of a state."""
    kept = Checkpoint()
    kept.put_state(state, "")
    return Checkpoint(clones(kept.tensors), copy.deepcopy(kept.values))


def same_image(one: Checkpoint, other: Checkpoint) -> bool:
    """True if two snapshots are of the same state."""
    tensors = {name: tensor.nan_to_num() for name, tensor in one.tensors.items()}
    others = {name: tensor.nan_to_num() for name, tensor in other.tensors.items()}
    return equal(tensors, others) and one.values == other.values
