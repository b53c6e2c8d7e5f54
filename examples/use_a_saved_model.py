"""Train, keep the models, and use one of them later: a decision for a new row.

python examples/use_a_saved_model.py
"""

from pathlib import Path
from tempfile import mkdtemp

import torch
from safetensors.torch import load_file

import fedpareto
from fedpareto.problems.synthetic import Synthetic

out = Path(mkdtemp(prefix="fedpareto-")) / "run"
fedpareto.run("synthetic", "fedpref", clients=4, rounds=3, preferences="equidistant", out=out)

# Later, perhaps elsewhere: all models are flat tensors [d], and the problem's layout says which slice is which.
models = load_file(out / "models.safetensors")
problem = Synthetic()
for client in range(4):
    stack_of_one = problem.layout.unflatten(models[f"seed0/client{client}"][None])
    new_row = torch.tensor([[[1.0, 2.0]]])  # one client, one row, two features
    probability = problem.model(stack_of_one, new_row).sigmoid().item()
    print(f"client {client}: P(y = 1) = {probability:.3f}")
