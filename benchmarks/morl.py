"""Twenty clients that learn by DQN, as one stack and as twenty agents of stable-baselines3 in sequence, side by side.

    python benchmarks/morl.py [--quick] [--problems deep-sea-treasure,minecart-deterministic] [--json FILE]

The thesis's parameters (table A.6), a tenth of its steps: the same number of environment steps, updates and rows in
each for both, one thread. `batched_over_sb3_20_clients` is the ratio of their times; `matmul_share` is the time of the
bare matrix products of our updates, measured alone, over the time of everything. On a machine with a CUDA device the
stack is timed there too, with 20 clients and with 200 (ten seeds of twenty). Needs the extra `morl` and
stable-baselines3; without the latter, or with --ours, only our side is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpareto.contract.registry import problem_class
from fedpareto.contract.stack import Stack
from fedpareto.learners.dqn import DQN
from fedpareto.problems.morl.problem import MORLProblem
from fedpareto.tensors import rng

CLIENTS, SEEDS = 20, 10
STEPS = {"deep-sea-treasure": 1_600, "minecart-deterministic": 640, "mo-lunar-lander": 640}
"""Environment steps a client: enough for a steady state."""
IDS = {
    "deep-sea-treasure": "deep-sea-treasure-v0",
    "minecart-deterministic": "minecart-deterministic-v0",
    "mo-lunar-lander": "mo-lunar-lander-v3",
}


def preferences(count: int, objectives: int) -> torch.Tensor:
    drawn = np.random.default_rng(0).dirichlet(np.ones(objectives), size=count)
    return torch.as_tensor(drawn, dtype=torch.float32)


def ours(problem: MORLProblem, learner: DQN, count: int, device: str = "cpu") -> float:
    """Seconds of one round of `count` clients."""
    weights = preferences(count, len(problem.objectives)).to(device)
    addresses = rng.Addresses.at(0, np.arange(count), round=1).to(device)
    positions = np.arange(count)
    clients = Stack(problem=problem, splits={}, addresses=addresses, positions=positions, preferences=weights)
    model = problem.initial(0).to(device).expand(count, -1)
    learner.probe().train(replace(clients), model, weights)  # Sets libraries and worker processes up.
    start = time.perf_counter()
    learner.train(clients, model, weights)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def their_agent(env: Any, problem: MORLProblem, learner: DQN, seed: int, exploration_fraction: float) -> Any:
    """An agent of stable-baselines3 with the parameters of ours."""
    from stable_baselines3 import DQN as Agent

    return Agent(
        "MlpPolicy",
        env,
        learning_rate=learner.lr,
        buffer_size=learner.buffer_size,
        learning_starts=learner.learning_starts,
        batch_size=learner.batch_size,
        gamma=learner.gamma,
        train_freq=learner.train_freq,
        gradient_steps=learner.gradient_steps,
        target_update_interval=learner.target_update_interval,
        exploration_fraction=exploration_fraction,
        exploration_final_eps=learner.exploration_final,
        policy_kwargs={"net_arch": list(problem.hidden)},
        seed=seed,
        device="cpu",
    )


def theirs(problem: MORLProblem, learner: DQN) -> float:
    """Seconds of twenty agents, one after the other."""
    import gymnasium
    import mo_gymnasium

    class Scalar(gymnasium.RewardWrapper):
        def __init__(self, env: gymnasium.Env, weights: np.ndarray) -> None:
            super().__init__(env)
            self.weights = weights

        def reward(self, reward: np.ndarray) -> float:
            return float(reward @ self.weights)

    weights = preferences(CLIENTS, len(problem.objectives)).numpy()
    start = time.perf_counter()
    for client in range(CLIENTS):
        env = Scalar(mo_gymnasium.make(IDS[problem.name]), weights[client])
        agent = their_agent(env, problem, learner, client, exploration_fraction=0.2)
        agent.learn(learner.steps)
    return time.perf_counter() - start


def matmuls(problem: MORLProblem, learner: DQN, device: str = "cpu", count: int = CLIENTS) -> float:
    """Seconds of nothing but the matrix products of our updates: forward, target and both halves of the backward."""
    table = problem.environment.every_observation() if learner.tables == "auto" and device == "cpu" else None
    rows = learner.batch_size if table is None else len(table)
    widths = (problem.environment.observation_size, *problem.hidden, problem.environment.actions.count)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, device=device)

    layers = [(noise(rows, i), noise(i, o), noise(rows, o)) for i, o in pairwise(widths)]

    def one() -> None:
        for number, (x, w, g) in enumerate(layers):
            torch.bmm(x, w)
            if table is None:
                torch.bmm(x, w)
            torch.bmm(x.mT, g)
            if number:
                torch.bmm(g, w.mT)

    for _ in range(3):
        one()
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        one()
    if device == "cuda":
        torch.cuda.synchronize()
    learning = (learner.steps - learner.learning_starts) // learner.train_freq
    return (time.perf_counter() - start) / 20 * learning * learner.updates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps")
    parser.add_argument("--ours", action="store_true", help="do not time stable-baselines3")
    parser.add_argument("--problems", default=",".join(STEPS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="gymnasium")
    torch.set_num_threads(1)
    compare = not options.ours and importlib.util.find_spec("stable_baselines3") is not None
    results = {}
    for name in options.problems.split(","):
        problem = problem_class(name)()
        steps = STEPS[name] // (5 if options.quick else 1)
        learner = replace(problem.learner(), steps=steps, learning_starts=steps // 10)
        result = {"steps": steps}
        seconds = ours(problem, learner, CLIENTS)
        result["batched_s"] = seconds
        result["env_steps_per_s"] = CLIENTS * steps / seconds
        result["matmul_share"] = matmuls(problem, learner) / seconds
        if compare:
            result["sb3_s"] = theirs(problem, learner)
            result["batched_over_sb3_20_clients"] = result["sb3_s"] / seconds
        if torch.cuda.is_available():
            for count in (CLIENTS, CLIENTS * SEEDS):
                seconds = ours(problem, learner, count, "cuda")
                result[f"cuda_{count}_s"] = seconds
                result[f"cuda_{count}_env_steps_per_s"] = count * steps / seconds
                result[f"cuda_{count}_matmul_share"] = matmuls(problem, learner, "cuda", count) / seconds
        results[name] = result
        print(name, json.dumps({key: round(value, 3) for key, value in result.items()}), flush=True)
    if options.json is not None:
        first = next(iter(results.values()))
        top = {key: first[key] for key in ("batched_over_sb3_20_clients", "env_steps_per_s") if key in first}
        options.json.write_text(json.dumps(top | {"problems": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
