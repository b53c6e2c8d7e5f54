"""Files that a node keeps of its final model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpareto.contract.messages import Message, Parcels
from fedpareto.contract.model_parts import densely, lattice
from fedpareto.record.servable import Card, network_of_problem, node_file, save_conditioned, save_solutions

if TYPE_CHECKING:
    from fedpareto_flower.engine.node import Node


def keep_servable(node: Node, run: int, solution: Message) -> None:
    """At a node: its model in a file that is all that `fedpareto predict`, `serve` and `export` need.

    Its preference is not in it: the file may be shared.
    """
    setting, problem = node.settings[run], node.problem
    inputs = problem.input_schema(len(setting.clients), setting.seed)
    if inputs is None:
        return
    card = Card(
        algorithm=node.algorithm.name,
        problem=problem.name,
        seed=setting.seed,
        client=node.client,
        objectives=problem.objectives,
        inputs=inputs,
        layout=problem.layout.dense,
        outputs=problem.outputs(),
        network=network_of_problem(problem),
    )
    path, sent = node_file(node.folder, setting.seed), Parcels(np.array([node.client]), solution)
    anatomy = node.algorithm.anatomy(problem.layout, len(problem.objectives))
    if anatomy is not None:
        parts = densely(anatomy, node.engine.model_parts(run, sent)[node.client])
        save_conditioned(path, card, anatomy.dense, {**parts, "lattice": lattice(anatomy.objectives)})
        return
    model = node.engine.models(run, sent)[node.client]
    if model.shape == (problem.layout.size,):  # Ensembles cannot be served.
        model = problem.layout.to_dense(model)
        save_solutions(path, card, [node.client], model[None], _objectives(node, run, solution)[None], None)


def _objectives(node: Node, run: int, solution: Message) -> np.ndarray:
    """The objectives of the node's model on its held-out rows, `[m]`."""
    exact = node.engine.objectives(run, Parcels(np.array([node.client]), solution))
    parts = node.engine.split_names
    place = parts.index("test") if "test" in parts else -1
    return exact[node.client][place].double().cpu().numpy()
