"""Do the batched DQN and stable-baselines3's reach the same return? Five seeds of each, the same steps.

    python benchmarks/morl_returns.py [--problem deep-sea-treasure] [--steps 15000] [--json FILE]

Every agent has the preference 1/m for each objective and learns alone, with the thesis's parameters (table A.6); its
policy without exploration is then measured over 20 episodes (one if the environment is deterministic). Our five are
one stack. Needs the extra `morl` and stable-baselines3.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from morl import IDS, their_agent

from fedpareto.contract.registry import problem_class
from fedpareto.contract.stack import Stack
from fedpareto.tensors import rng

SEEDS = range(5)
EPISODES = 20


def ours(name: str, steps: int, device: str) -> list[float]:
    """The scalarised returns of our five."""
    problem = problem_class(name)(episodes=EPISODES)
    learner = replace(problem.learner(), steps=steps, target="kept")
    objectives = len(problem.objectives)
    weights = torch.full((len(SEEDS), objectives), 1 / objectives, device=device)
    addresses = rng.Addresses.of([rng.Address(seed, 0, 1) for seed in SEEDS], device)
    positions = np.arange(len(SEEDS))
    clients = Stack(problem=problem, splits={}, addresses=addresses, positions=positions, preferences=weights)
    start = torch.stack([problem.initial(seed) for seed in SEEDS]).to(device)
    model = learner.train(clients, start, weights)
    returns = problem.score(clients, model)[:, -1]
    return [float(value) for value in (returns * weights).sum(1)]


def theirs(name: str, steps: int, seed: int) -> float:
    """The scalarised return of one of theirs."""
    import gymnasium
    import mo_gymnasium

    warnings.filterwarnings("ignore", module="gymnasium")
    torch.set_num_threads(1)
    problem = problem_class(name)()
    learner = problem.learner()

    class Mean(gymnasium.RewardWrapper):
        def reward(self, reward: np.ndarray) -> float:
            return float(np.mean(reward))

    env = Mean(mo_gymnasium.make(IDS[name]))
    agent = their_agent(env, problem, learner, seed, min(learner.exploration_steps / steps, 1.0))
    agent.learn(steps)
    total = 0.0
    for episode in range(EPISODES):
        seen, _ = env.reset(seed=1000 + episode)
        over = False
        while not over:
            action, _ = agent.predict(seen, deterministic=True)
            seen, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
    return total / EPISODES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="deep-sea-treasure", choices=sorted(IDS))
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--jobs", type=int, default=1, help="processes for theirs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="gymnasium")
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start = time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(theirs, options.problem, options.steps, seed) for seed in SEEDS]
        found = {"fedpareto": ours(options.problem, options.steps, device)}
        found["stable-baselines3"] = [one.result() for one in waiting]
    for who, values in found.items():
        each = " ".join(f"{value:8.2f}" for value in values)
        print(f"{who:>18}: mean {np.mean(values):8.2f}, deviation {np.std(values):6.2f}   ({each})")
    print(f"{options.problem}, {options.steps} steps, {time.perf_counter() - start:.0f} s")
    if options.json is not None:
        options.json.write_text(json.dumps(vars(options) | found, indent=2, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
