"""Minecart as a tensor program: a cart drives to one of five mines, fills itself with two ores and brings them home.

Abels et al. 2019, "Dynamic weights in multi-objective deep reinforcement learning"; equal to mo-gymnasium's
minecart-deterministic-v0 step by step but for the last digit (see Minecart), in which mines always yield the same. The
world is the unit square, with the base in the corner at the origin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.environment import Actions, Environment, TensorEnvironment
from fedpareto.contract.messages import Message
from fedpareto.contract.problem import Objective
from fedpareto.learners.dqn import DQN
from fedpareto.problems.morl.problem import MORLProblem

# Constants of the authors' own program, which mo-gymnasium has kept.

FRAMES = 4
"""An action is repeated this many times, and counts as one step."""
TURN = 10
"""Degrees of one turn: all directions that a cart can have are START + a multiple of it."""
START = 45
"""Degrees from the x axis of a cart that sets out."""
HORIZON = 1000
"""Steps after which mo-gymnasium truncates an episode."""
FARTHEST = 360 // TURN + FRAMES * HORIZON
"""Turns, either way, that a direction can be from START. A cart that turns stays below 360 degrees, but walls can turn
it further: at most once in a frame.
"""
ACCELERATION = 0.0075
"""Per frame. The original's top speed of 1 is the side of the square: no cart gets near it between two walls."""
STANDSTILL = 0.001
"""A cart that is slower stays where it is, and can mine."""
BASE_RADIUS = 0.15
MINE_RADIUS = 0.14
CAPACITY = 1.5
"""Ore that the cart holds, of both kinds together."""
MINES = ((0.16, 0.84), (0.5, 0.84), (0.84, 0.84), (0.84, 0.5), (0.84, 0.16))
"""Farther from each other than twice their radius: a cart is at one of them at most."""
YIELDS = ((0.2, 0.0), (0.15, 0.1), (0.2, 0.2), (0.1, 0.15), (0.0, 0.2))
"""Yield of each mine and frame, of both ores."""
FUEL = -0.005
"""Fuel of each frame, whatever is done."""

FRONT = (
    (0.0, 0.0, -0.26),
    (0.0, 0.8, -0.78),
    (0.0, 1.5, -1.0),
    (0.4, 0.6, -0.82),
    (0.6, 0.4, -0.82),
    (0.6, 0.9, -1.04),
    (0.75, 0.75, -0.88),
    (0.8, 0.0, -0.78),
    (0.9, 0.6, -1.04),
    (1.5, 0.0, -1.0),
)
"""Both ores and fuel: some or all that the cart holds from one of the mines, or nothing and home again."""


class Effect(NamedTuple):
    """Effect of an action in each frame."""

    turns: int = 0
    """Number of turns, each of TURN degrees."""
    accelerates: float = 0.0
    brakes: bool = False
    """Braking is a halt, at once."""
    mines: bool = False
    fuel: float = 0.0
    """Fuel beside FUEL."""


ACTIONS = {
    "mine": Effect(mines=True, fuel=-0.05),
    "left": Effect(turns=-1),
    "right": Effect(turns=1),
    "accelerate": Effect(accelerates=ACCELERATION, fuel=-0.025),
    "brake": Effect(brakes=True),
    "nothing": Effect(),
}

Array: TypeAlias = Any
"""Array of numpy or of torch. What follows is written in what both have in common, and gives the same bits in both:
numpy's calls cost a fifth of torch's where arrays are so small, but only torch runs on a GPU."""


class Rules(NamedTuple):
    """The constants as arrays: by action, by direction and by mine."""

    row: Array
    """Row of `turned` for each action."""
    accelerates: Array
    keeps: Array
    """1, or 0 if it brakes."""
    mines: Array
    fuel: Array
    """Fuel of a whole step."""
    turned: Array
    """The direction after turning by 0, 1 and −1, `[3, directions]`."""
    directions: Array
    """Cosine and sine of each, `[directions, 2]`."""
    places: Array
    yields: Array
    """Both ores in one frame, and the frames in which one unit of ore is mined, `[5, 3]`."""

    @classmethod
    def of_numpy(cls) -> Rules:
        effects = list(ACTIONS.values())
        angles = START + TURN * np.arange(-FARTHEST, FARTHEST + 1)
        turned = [angles, (angles + TURN) % 360, (angles - TURN) % 360]
        # The original's conversion to radians, whose last digit may matter (see Minecart).
        directions = [(math.cos(angle * math.pi / 180), math.sin(angle * math.pi / 180)) for angle in angles]
        return cls(
            row=np.array([effect.turns % 3 for effect in effects]),
            accelerates=np.array([effect.accelerates for effect in effects]),
            keeps=np.array([1.0 - effect.brakes for effect in effects]),
            mines=np.array([float(effect.mines) for effect in effects]),
            # The original adds up in single precision.
            fuel=np.array([np.float32(FUEL * FRAMES) + np.float32(effect.fuel * FRAMES) for effect in effects]),
            turned=np.searchsorted(angles, turned),
            directions=np.array(directions),
            places=np.array(MINES),
            yields=np.array([(*ores, 1 / sum(ores)) for ores in YIELDS]),
        )


@dataclass(frozen=True)
class Minecart(TensorEnvironment):
    """A cart is a row of seven numbers: position, speed, direction, load and whether it has left the base.

    In double precision, and operations are rounded as in the original: a cart that turns round just beside a wall gets
    back to it or stops a hair's breadth short of it, as the last digit falls, and is then turned along it or not. The
    original's lengths are np.dot's, of which some machines fuse the products; there such a cart may diverge.
    """

    observation_size: int = 7
    actions: Actions = Actions(count=len(ACTIONS))
    objectives: int = 3
    horizon: int = HORIZON

    @cached_property
    def _rules(self) -> dict[torch.device, Rules]:
        """Rules by device; numpy's for a CPU."""
        return {torch.device("cpu"): Rules.of_numpy()}

    def _on(self, device: torch.device) -> Rules:
        if device not in self._rules:
            self._rules[device] = Rules(*(torch.as_tensor(array, device=device) for array in Rules.of_numpy()))
        return self._rules[device]

    def start(self, n: int, device: torch.device) -> Message:
        """Carts are empty, at rest, in the base's corner."""
        cart = torch.tensor([0, 0, 0, FARTHEST, 0, 0, 0], dtype=torch.float64, device=device)
        return {"cart": cart.repeat(n, 1)}

    def observe(self, state: Message) -> Tensor:
        """Position, speed, sine and cosine of the direction, and how full the cart is."""
        cart = state["cart"]
        rules = self._on(cart.device)
        if cart.device.type == "cpu":
            return torch.from_numpy(seen(np, rules, cart.numpy()))
        return cast(Tensor, seen(torch, rules, cart))

    def advance(self, state: Message, action: Tensor) -> tuple[Message, Tensor, Tensor]:
        cart = state["cart"]
        rules = self._on(cart.device)
        if cart.device.type == "cpu":
            after, reward, over = map(torch.from_numpy, driven(np, rules, cart.numpy(), action.numpy()))
        else:
            after, reward, over = driven(torch, rules, cart, action)
        return {"cart": after}, reward, over


def seen(xp: Any, rules: Rules, cart: Array) -> Array:
    """Observations of carts `[n, 7]`, `[n, 7]` in single precision."""
    cosine, sine = rules.directions[_whole(xp, cart[:, 3])].T
    parts = [cart[:, :3], sine[:, None], cosine[:, None], cart[:, 4:6] / CAPACITY]
    return xp.asarray(xp.concatenate(parts, 1), dtype=xp.float32)


def driven(xp: Any, rules: Rules, cart: Array, action: Array) -> tuple[Array, Array, Array]:
    """Carts `[n, 7]` after a step, their rewards `[n, 3]`, and whether they have come home, `[n]`.

    Ore counts when it comes home, which ends the episode.
    """
    row, accelerates, keeps = rules.row[action], rules.accelerates[action], rules.keeps[action]
    position, speed, direction, departed = cart[:, :2], cart[:, 2], _whole(xp, cart[:, 3]), cart[:, 6] > 0
    # Of truths, a > b is "a and not b" in one call, and a >= b "a or not b".
    on_tour = xp.ones_like(departed)
    resting = []
    for _ in range(FRAMES):
        direction = rules.turned[row, direction]
        speed = speed * keeps + accelerates
        resting.append(speed < STANDSTILL)
        # A cart that came home in the frame before still turns or accelerates, but no longer moves.
        row, accelerates = row * on_tour, accelerates * on_tour
        moves = on_tour > resting[-1]
        velocity = (speed * moves)[:, None] * rules.directions[direction]
        before, position = position, xp.clip(position + velocity, 0.0, 1.0)
        way = position - before
        direction = direction + _whole(xp, _slide(xp, before, velocity, way))
        length, distance = _length(xp, xp.stack([way, position]))
        speed = xp.where(moves, length, speed)
        is_away = distance >= BASE_RADIUS
        on_tour = on_tour & (is_away >= departed)
        departed = departed | is_away
    # A cart that rests while it mines does so until the step is over.
    load = _filled(xp, rules, cart[:, 4:6], position, xp.stack(resting).sum(0) * rules.mines[action])
    over = ~on_tour
    sold = load * over[:, None]
    columns = [position, speed[:, None], direction[:, None], load - sold, departed[:, None]]
    reward = [sold, rules.fuel[action][:, None]]
    return xp.concatenate(columns, 1), xp.asarray(xp.concatenate(reward, 1), dtype=xp.float32), over


def _slide(xp: Any, position: Array, velocity: Array, way: Array) -> Array:
    """Number of TURNs, `[n]`, by which a cart that drives against a wall is turned along it.

    It leans against a wall if it stands there already and gets no farther. It glides along the other axis if that is
    not blocked by a corner, and fast enough.
    """
    leans = velocity * (way == 0)
    # Walls are at 0 and at 1: a cart that is not at one has a fractional part.
    glides = (velocity - xp.clip(velocity, -STANDSTILL, STANDSTILL)) * (position % 1)
    return xp.sign(leans[:, 0] * glides[:, 1] - leans[:, 1] * glides[:, 0])


def _filled(xp: Any, rules: Rules, load: Array, position: Array, frames: Array) -> Array:
    """The load `[n, 2]` after mining for a number of frames `[n]`: no more than fits, and nothing far from a mine."""
    is_at = _length(xp, position[:, None] - rules.places) <= MINE_RADIUS
    found = xp.asarray(is_at, dtype=xp.float64) @ rules.yields
    until_full = (CAPACITY - load.sum(1)) * found[:, 2]
    return load + found[:, :2] * xp.minimum(frames, until_full)[:, None]


def _length(xp: Any, vectors: Array) -> Array:
    """Lengths of vectors `[..., 2]`; a library's own norm may round otherwise."""
    return xp.sqrt(xp.square(vectors).sum(-1))


def _whole(xp: Any, numbers: Array) -> Array:
    return xp.asarray(numbers, dtype=xp.int64)


@dataclass(frozen=True)
class MinecartDeterministic(MORLProblem):
    """Three objectives, two ores and fuel, with few and distant trade-offs."""

    name: ClassVar[str] = "minecart-deterministic"

    discount: float = 0.99

    @cached_property
    def environment(self) -> Environment:
        return Minecart()

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The reference point is that of the thesis's tables 4.3 ff."""
        return (
            Objective("ore 1", maximise=True, reference=-1.0),
            Objective("ore 2", maximise=True, reference=-1.0),
            Objective("fuel", maximise=True, reference=-50.0),
        )

    def known_front(self) -> np.ndarray:
        """Undiscounted; mo-gymnasium's estimate: straight to a mine, about on the spot and straight back.

        A cart cannot turn by 180 degrees in steps of 40, so that some of it may be out of reach by a little fuel.
        """
        return np.array(FRONT)

    def learner(self) -> DQN:
        """Table A.6 of the thesis; 200,000 steps in all, of which exploration takes four fifths."""
        return DQN(
            steps=5_000,
            lr=2e-4,
            batch_size=64,
            buffer_size=50_000,
            learning_starts=50_000,
            gamma=self.discount,
            target_update_interval=750,
            train_freq=32,
            gradient_steps=32,
            exploration_steps=160_000,
            exploration_final=0.05,
        )
