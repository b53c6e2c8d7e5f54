"""A process that runs copies of mo-gymnasium environments for gym_environment.

Started as `python -m fedpareto.problems.morl.gym_worker`, it reads requests from its standard input and answers on its
standard output until the former is closed, as it is when the parent process has gone. A request is a HEADER and its
bytes of content; numbers are raw, in this machine's byte order. Nothing here imports torch, so that a process starts
fast and stays small.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

HEADER = struct.Struct("=qqqq")
"""Command, number of the session, number of its copies, bytes of what follows."""
LENGTH = struct.Struct("=q")
"""Bytes of an answer whose length the other side does not know."""
PLACE = np.dtype((np.int64, (3,)))
"""Origin, episode and steps so far of a copy."""


class Command(IntEnum):
    """Requests and their answers."""

    DESCRIBE = 0
    """Content: the environment's key. Answer: its length and `described` as JSON."""
    OPEN = 1
    """Content: the environment's key, a line break, the PLACE of every copy, and the actions of all steps so far, copy
    after copy. Answer: observations, float32 `[copies, o]`."""
    STEP = 2
    """Content: an action for every copy. Answer: float32 `[copies, 2·o + m + 2]`, see Copy.step."""
    REST = 3
    """Content: for every copy a byte, 1 if it is no longer needed. No answer."""
    CLOSE = 4
    """No content, no answer."""


def key(id: str, horizon: int) -> bytes:
    """The key of an environment; a horizon of 0 is its own."""
    return json.dumps({"id": id, "horizon": horizon}).encode()


def episode_seed(origin: int, episode: int) -> int:
    """The seed with which an episode is reset: 32 bits, which is what every generator takes."""
    return int(np.random.SeedSequence((origin, episode)).generate_state(1)[0])


# -- describing an environment ---------------------------------------------------------------------------------------


def library() -> ModuleType:
    import gymnasium
    import mo_gymnasium  # noqa: F401 (it registers them)

    gymnasium.logger.min_level = gymnasium.logger.ERROR
    return gymnasium


def make(key: bytes) -> Any:
    gymnasium, (id, horizon) = library(), json.loads(key).values()
    if "mujoco" in str(getattr(gymnasium.registry.get(id), "entry_point", "")):
        import mujoco

        # Without this, MuJoCo writes every warning to a file of its own in the user's folder.
        mujoco.set_mju_user_warning(lambda text: None)
    # Gymnasium's checks expect a scalar reward.
    return gymnasium.make(id, max_episode_steps=horizon or None, disable_env_checker=True)


def described(key: bytes) -> dict[str, Any]:
    """Sizes and bounds of an environment, or what prevents running it.

    That is one of `missing` (a Python package), `unknown` (with the ids that there are) and `unfit` (a sentence).
    """
    id, horizon = json.loads(key).values()
    try:
        registry = library().registry
        module, _, name = id.rpartition(":")
        if module:
            import_module(module)
        if name not in registry:
            return {"unknown": [known for known, spec in registry.items() if "mo_gymnasium" in str(spec.entry_point)]}
        return _spaces(make(key)) | ({"horizon": horizon} if horizon else {})
    except Exception as problem:
        return {"missing": _missing(problem)}


def _missing(problem: BaseException) -> str:
    """The missing package that made an import fail; gymnasium raises its own error after that."""
    error: BaseException | None = problem
    while error is not None:
        if isinstance(error, ImportError) and error.name:
            return error.name.split(".")[0]
        error = error.__cause__ or error.__context__
    raise problem


def _spaces(environment: Any) -> dict[str, Any]:
    from gymnasium.spaces import Box, Discrete

    seen, done, plain = environment.observation_space, environment.action_space, environment.unwrapped
    earned = getattr(plain, "reward_space", None)
    if not isinstance(earned, Box) or earned.shape in ((), (1,)):
        return {"unfit": "has a single reward, not one for each of several objectives"}
    if not isinstance(seen, Box) or len(seen.shape) > 1:
        kind = "an array with several dimensions" if isinstance(seen, Box) else f"a {type(seen).__name__}"
        return {"unfit": f"shows {kind}; only vectors of numbers can be learnt from"}
    if isinstance(done, Discrete):
        actions = {"count": int(done.n)}
    elif isinstance(done, Box) and done.is_bounded():
        actions = {side: getattr(done, side).ravel().tolist() for side in ("low", "high")}
    else:
        return {"unfit": "has actions that are neither a few to choose from nor vectors between bounds"}
    return {
        "observation_size": int(np.prod(seen.shape)),
        "actions": actions,
        "objectives": int(earned.shape[0]),
        "horizon": environment.spec.max_episode_steps,
        "lowest": earned.low.tolist(),
    }


# -- running ---------------------------------------------------------------------------------------------------------


class Copy:
    """One environment in one episode, which is identified by its origin, its number and its actions."""

    def __init__(self, key: bytes) -> None:
        self.environment = make(key)
        space = self.environment.action_space
        self._shape, self._type, self._first = space.shape, space.dtype, getattr(space, "start", None)
        self.seen = int(np.prod(self.environment.observation_space.shape))
        self.earned = int(self.environment.unwrapped.reward_space.shape[0])
        self.origin, self.episode, self.done = -1, -1, bytearray()

    @property
    def action_type(self) -> np.dtype[Any]:
        if self._first is not None:
            return np.dtype(np.int64)
        return np.dtype((np.float32, (int(np.prod(self._shape)),)))

    @property
    def place(self) -> tuple[int, int, bytes]:
        """State as a key: equal keys mean equal states."""
        return self.origin, self.episode, bytes(self.done)

    def go_to(self, origin: int, episode: int, actions: np.ndarray) -> None:
        self._begin(origin, episode)
        for action in actions:
            self._act(action)

    def observe(self, row: np.ndarray) -> None:
        row[...] = self._observation

    def step(self, action: np.ndarray, row: np.ndarray) -> None:
        """Writes to `row`: the observation after the action; rewards; termination and truncation; the observation to
        continue from, which is the start of the next episode after an end.
        """
        reward, terminated, truncated = self._act(action)
        row[: self.seen] = self._observation
        row[self.seen : -self.seen - 2] = reward
        row[-self.seen - 2] = terminated
        row[-self.seen - 1] = truncated and not terminated
        if terminated or truncated:
            self._begin(self.origin, self.episode + 1)
        row[-self.seen :] = self._observation

    def _begin(self, origin: int, episode: int) -> None:
        observation, _ = self.environment.reset(seed=episode_seed(origin, episode))
        self.origin, self.episode, self.done = origin, episode, bytearray()
        self._observation = observation

    def _act(self, action: np.ndarray) -> tuple[Any, bool, bool]:
        self.done += action.tobytes()
        wanted = action + self._first if self._first is not None else action.reshape(self._shape).astype(self._type)
        self._observation, reward, terminated, truncated, _ = self.environment.step(wanted)
        return reward, terminated, truncated


@dataclass
class Played:
    """The copies of one session."""

    copies: Sequence[Copy]
    answer: np.ndarray
    """Answer of a step, `[copies, 2·o + m + 2]`."""
    at_work: Sequence[tuple[Copy, np.ndarray, int]]
    """Active copies: the copy, its row of `answer`, and its number."""


@dataclass
class Worker:
    """Answers requests."""

    answers: BinaryIO
    sessions: dict[int, tuple[bytes, Played]] = field(default_factory=dict)
    idle: dict[bytes, list[Copy]] = field(default_factory=dict)
    """Copies whose session is over, by the environment's key; they keep their state until they are reused."""

    def serve(self, requests: BinaryIO) -> None:
        """Answer requests until the input is closed."""
        while len(header := requests.read(HEADER.size)) == HEADER.size:
            command, session, count, length = HEADER.unpack(header)
            content = requests.read(length)
            if len(content) < length:
                return
            self._answer(Command(command), session, count, content)
            self.answers.flush()

    def _answer(self, command: Command, session: int, count: int, content: bytes) -> None:
        match command:
            case Command.DESCRIBE:
                text = json.dumps(described(content)).encode()
                self.answers.write(LENGTH.pack(len(text)) + text)
            case Command.OPEN:
                self._open(session, count, *content.split(b"\n", 1))
            case Command.STEP:
                self._step(self.sessions[session][1], content)
            case Command.REST:
                played = self.sessions[session][1]
                played.at_work = [work for work in played.at_work if not content[work[2]]]
            case Command.CLOSE:
                key, played = self.sessions.pop(session)
                self.idle.setdefault(key, []).extend(played.copies)

    def _open(self, session: int, count: int, key: bytes, content: bytes) -> None:
        idle = self.idle.setdefault(key, [])
        if not idle:
            idle.append(Copy(key))
        places = np.frombuffer(content, PLACE, count)
        actions = np.frombuffer(content[places.nbytes :], idle[0].action_type)
        so_far = np.split(actions, places[:-1, 2].cumsum())
        copies = self._placed(key, places, so_far)
        answer = np.zeros((count, 2 * copies[0].seen + copies[0].earned + 2), dtype=np.float32)
        at_work = [(copy, answer[number], number) for number, copy in enumerate(copies)]
        self.sessions[session] = key, Played(copies, answer, at_work)
        seen = np.empty((count, copies[0].seen), dtype=np.float32)
        for row, copy in zip(seen, copies, strict=True):
            copy.observe(row)
        self.answers.write(seen.tobytes())

    def _placed(self, key: bytes, places: np.ndarray, so_far: Sequence[np.ndarray]) -> list[Copy]:
        """A copy in each state: one that is in it already, or else any other, which is then brought to it."""
        wanted = [(int(place[0]), int(place[1]), actions) for place, actions in zip(places, so_far, strict=True)]
        idle = self.idle[key]
        standing = {copy.place: copy for copy in idle}
        copies = [standing.pop((origin, episode, actions.tobytes()), None) for origin, episode, actions in wanted]
        taken = {id(copy) for copy in copies}
        idle[:] = [copy for copy in idle if id(copy) not in taken]
        return [copy or self._brought(key, *place) for copy, place in zip(copies, wanted, strict=True)]

    def _brought(self, key: bytes, origin: int, episode: int, actions: np.ndarray) -> Copy:
        copy = self.idle[key].pop() if self.idle[key] else Copy(key)
        copy.go_to(origin, episode, actions)
        return copy

    def _step(self, played: Played, content: bytes) -> None:
        actions = np.frombuffer(content, dtype=played.copies[0].action_type)
        for copy, row, number in played.at_work:
            copy.step(actions[number], row)
        self.answers.write(played.answer.data)


def main() -> None:
    """Serves on the standard streams; whatever libraries print goes to standard error instead.

    The parent reads the last line there, so nothing may follow an error: neither what was printed but not yet written,
    nor what libraries say when a process exits.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    warnings.simplefilter("ignore")
    try:
        Worker(answers).serve(sys.stdin.buffer)
    except BaseException:
        sys.stdout.flush()
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
