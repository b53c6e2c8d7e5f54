"""Operations of clients' work, counted on a few rows of one client: what simulated time is computed from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fedpareto.contract.algorithm import Algorithm, Setting
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import Message, Replies
from fedpareto.tensors.replay import Recordings

STEP = "train"


@dataclass(frozen=True)
class Law:
    """Growth of operations with a client's rows: a part in proportion to its training (see Learner.effort), one in
    proportion to its rows, such as for its loss on all of them, and one that is the same for everybody.
    """

    learner: Learner
    effort: float = 0.0
    rows: float = 0.0
    constant: float = 0.0

    def operations(self, counts: np.ndarray) -> np.ndarray:
        """Operations of clients with so many rows, `[n]`; nobody works without rows where others have some."""
        found = self.effort * self.learner.effort(counts) + self.rows * counts + self.constant
        return np.where(counts > 0, found, 0.0) if counts.any() else found


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
    """Counts as torch's FlopCounterMode does, with its formulas, but without a table of modules.

    A class of torch's own is kept from the compiler, for which the compiler is imported: 800 modules, 1.5 seconds.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.operations = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Counts what an operation is made of, or else the operation itself."""
        kwargs = kwargs or {}
        with self:
            found = func.decompose(*args, **kwargs)
        if found is NotImplemented:
            found = func(*args, **kwargs)
            formula = flop_registry.get(func._overloadpacket)
            self.operations += formula(*args, **kwargs, out_val=found) if formula else 0
        return found


def law_of(algorithm: Algorithm[Any], setting: Setting, clients: Clients) -> Law:
    """Fit the law to what a stack of one client computes."""
    learner = clients.learner
    train = clients.splits.get("train")
    short, sizes = learner.countable(0 if train is None else int(train.counts[clients.positions[0]]))
    sample = replace(clients, learner=short)
    found = [_counted(algorithm, setting, _with_rows(sample, algorithm, setting, size)) for size in sizes]
    efforts = short.effort(np.array(sizes))
    if not found or not efforts[0]:
        return Law(learner)
    if len(found) == 1:
        return Law(learner, effort=found[0] / efforts[0])
    more = (found[1] - found[0]) / (sizes[1] - sizes[0])
    rest = found[0] - more * sizes[0]
    if efforts[0] == efforts[1]:  # Training does not grow with rows here: it is the rest.
        return Law(learner, effort=rest / efforts[0], rows=more)
    return Law(learner, rows=more, constant=rest)


def _with_rows(clients: Clients, algorithm: Algorithm[Any], setting: Setting, rows: int) -> Clients:
    """A stack of one client with so many training rows, as new: what it kept has no part in it, nothing is kept of it,
    and nothing is recorded.
    """
    splits = dict(clients.splits)
    if "train" in splits:
        counts = splits["train"].counts.copy()
        counts[clients.positions] = rows
        splits["train"] = replace(splits["train"], counts=counts)
    state = {name: tensor[None].clone() for name, tensor in algorithm.private_state(setting).items()}
    return replace(clients, splits=splits, state=state, memory={}, recordings=Recordings(when="never"))


def _counted(algorithm: Algorithm[Any], setting: Setting, clients: Clients) -> int:
    """Operations of one `train` of a client that is alone in its federation; of an algorithm without such a step in its
    first round, of the step with the most.
    """
    who = clients.addresses.client.cpu().numpy()
    alone = replace(setting, clients=who, participation=1.0, regulars=(), widths=None)
    state, found = algorithm.begin(alone), dict[str, int]()
    while state.round == 0 and STEP not in found:
        replies = []
        for tasks in algorithm.ask(state):
            with Counter() as counter:
                reply: Message = algorithm.client_step(tasks.step, clients, tasks.stacked())
            found.setdefault(tasks.step, counter.operations)
            replies.append(Replies(tasks.clients, reply, tasks.step, np.array([tasks.lane]), np.array([tasks.round])))
        if STEP not in found:
            state = algorithm.tell(state, Replies.cat(replies))
    return found.get(STEP, max(found.values()))
