"""The worker processes: what they print, how they end, and how few they are."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from gym_playing import FORGET, begun, plain, random_actions

from fedpareto.contract import consent
from fedpareto.problems.morl import gym_pool, gym_worker
from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.problems.morl.gym_pool import WorkerDied, close_pool, pool
from fedpareto.problems.morl.gym_worker import HEADER, Command
from processes import Python, run
from waiting import until

CHATTY = """
import atexit

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Chatty(gymnasium.Env):
    observation_space = Box(-1, 1, (), np.float64)
    action_space = Discrete(3, start=5)
    reward_space = Box(-1, 1, (2,))

    def reset(self, seed=None, options=None):
        print("a new episode", seed)
        return np.float64(0.5), {}

    def step(self, action):
        print("something was done:", action)
        if action == 7:
            raise RuntimeError("seven is not a nice number")
        return np.float64(0.25), np.array([action, 0.5]), False, False, {}


gymnasium.register("chatty-v0", Chatty, max_episode_steps=4)
atexit.register(print, "goodbye")
"""


@pytest.fixture
def chatty(tmp_path, monkeypatch, own_processes):
    (tmp_path / "talks.py").write_text(CHATTY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    consent.name("talks")
    return GymEnvironment.of("talks:chatty-v0")


def test_an_environment_of_ones_own_is_played_and_may_print(chatty):
    assert (chatty.observation_size, chatty.actions.count, chatty.objectives, chatty.horizon) == (1, 3, 2, 4)
    session = begun(chatty, 3)
    assert session.observation.tolist() == [[0.5]] * 3
    transition = session.step(torch.tensor([0, 1, 0]))
    assert transition.reward.tolist() == [[5, 0.5], [6, 0.5], [5, 0.5]]
    assert transition.observation.tolist() == [[0.25]] * 3


def test_nothing_is_left_in_the_users_folder(tmp_path, monkeypatch, own_processes):
    monkeypatch.chdir(tmp_path)
    session = begun(GymEnvironment.of("mo-halfcheetah-v4", 10), 2)
    session.step(torch.zeros(2, 6))
    close_pool()
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_environment_is_told_whatever_was_printed(chatty):
    session = begun(chatty, 3)
    with pytest.raises(WorkerDied, match="ended with code 1: RuntimeError: seven is not a nice number"):
        session.step(torch.tensor([0, 0, 2]))
    with pytest.raises(WorkerDied, match="were ended"):
        session.step(torch.tensor([0, 0, 0]))
    session.close()
    assert begun(chatty, 3).step(torch.tensor([1, 1, 1])).reward[0, 0] == 6


def test_a_killed_worker_is_told_and_the_next_session_has_others(own_processes):
    environment = GymEnvironment.of("mo-mountaincar-v0", 10)
    session = begun(environment, 4)
    first = pool().workers
    first[1].process.kill()
    with pytest.raises(WorkerDied, match="ended with code -9"):
        session.step(torch.zeros(4, dtype=torch.int64))
    assert all(worker.process.poll() is not None for worker in first)
    again = begun(environment, 4)
    again.step(torch.zeros(4, dtype=torch.int64))
    assert len(pool().workers) == 2


def test_who_is_interrupted_between_a_question_and_its_answer_asks_others_next(monkeypatch, own_processes):
    environment = GymEnvironment.of("mo-mountaincar-v0", 10)
    actions = random_actions(environment, 1, 4)[0]
    expected = begun(environment, 4).step(actions)
    session = begun(environment, 4)
    # Who started the tests in the background may have had the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gym_pool.Worker, "answer", lambda self, into: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                session.step(actions)
    finally:
        signal.signal(signal.SIGINT, before)
    assert all(map(torch.equal, begun(environment, 4).step(actions), expected))


def test_sessions_share_processes_and_give_their_copies_back(own_processes):
    environment = GymEnvironment.of("mo-mountaincar-v0", 10)
    sizes = (1, 6, 3, 2, 6)
    for n in sizes:
        session = begun(environment, n)
        session.step(torch.zeros(n, dtype=torch.int64))
        session.close()
        session.close()
    workers = pool().workers
    assert len(workers) == 2
    assert len(pool().over) == 1
    forgotten = begun(environment, 3)
    del forgotten, session
    gc.collect()
    assert len(pool().over) == 1
    close_pool()
    assert all(worker.process.poll() == 0 for worker in workers)


def requests(*parts):
    """A stream of requests as a worker reads it."""
    stream = b""
    for command, session, count, content in parts:
        stream += HEADER.pack(command, session, count, len(content)) + content
    return io.BytesIO(stream)


def test_a_worker_makes_no_more_copies_than_it_needs_and_replays_no_more_than_it_must(monkeypatch):
    resets, made = [], []

    def counted(key):
        inner = plain("mo-mountaincar-v0", 10)
        reset = inner.reset
        monkeypatch.setattr(inner, "reset", lambda **how: resets.append(how) or reset(**how))
        made.append(inner)
        return inner

    monkeypatch.setattr(gym_worker, "make", counted)
    key = gym_worker.key("mo-mountaincar-v0", 10) + b"\n"

    def opened(session, places, *actions):
        return Command.OPEN, session, len(places), key + np.array([*np.ravel(places), *actions], np.int64).tobytes()

    def step(session, *actions):
        return Command.STEP, session, 0, np.array(actions, np.int64).tobytes()

    worker = gym_worker.Worker(io.BytesIO())
    worker.serve(requests(opened(0, [(1, 0, 0), (2, 0, 0)]), step(0, 2, 1), step(0, 0, 1), (Command.CLOSE, 0, 0, b"")))
    assert (len(made), len(resets)) == (2, 2)
    # The second client stands there already; the other did something else the last time.
    worker.serve(requests(opened(1, [(2, 0, 2), (1, 0, 2)], 1, 1, 2, 1), (Command.CLOSE, 1, 0, b"")))
    assert (len(made), len(resets)) == (2, 3)
    worker.serve(requests(opened(2, [(1, 0, 2)], 2, 1), opened(3, [(3, 0, 0), (4, 0, 0)])))
    assert (len(made), len(resets)) == (3, 5)


def test_workers_end_with_the_process_that_started_them(tmp_path):
    script = (
        "import time, numpy, torch\n"
        "from fedpareto.tensors import rng\n"
        "from fedpareto.problems.morl import gym_pool\n"
        "from fedpareto.problems.morl.gym_environment import GymEnvironment\n"
        "gym_pool.cores = lambda: 2\n"
        "environment, who = GymEnvironment.of('mo-mountaincar-v0'), rng.Addresses.at(0, numpy.arange(4), 0)\n"
        "session = environment.open(environment.begin(who, torch.device('cpu')), who)\n"
        "print(*(worker.process.pid for worker in gym_pool.pool().workers), flush=True)\n"
        "time.sleep(3600)\n"
    )
    with Python([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        workers = [int(number) for number in process.stdout.readline().split()]
        assert len(workers) == 2
        assert all(Path(f"/proc/{worker}").exists() for worker in workers)
        process.kill()
    until(lambda: not any(is_running(worker) for worker in workers))


def is_running(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_stays_small():
    script = (
        "import sys\n"
        "from fedpareto.problems.morl import gym_worker\n"
        "assert 'gymnasium' not in sys.modules\n"
        "gym_worker.described(gym_worker.key('mo-mountaincar-v0', 0))\n"
        "assert 'gymnasium' in sys.modules\n"
        "print(sorted({'torch', 'pandas', 'matplotlib', 'fedpareto.contract'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_this_process_never_loads_the_library():
    script = (
        f"{FORGET}\n"
        "from fedpareto.contract.registry import problems\n"
        "for name in ('mo-lunar-lander', 'mo-gymnasium'):\n"
        "    problems()[name]().data(2, 0)\n"
        "print('gymnasium' in sys.modules)\n"
    )
    done = run([sys.executable, "-c", script], check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_one_of_several_processes_side_by_side_has_one_worker(monkeypatch):
    monkeypatch.undo()
    assert gym_pool.cores() == len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        assert executor.submit(gym_pool.cores).result() == 1
    monkeypatch.setenv("RAY_RAYLET_PID", "1")
    assert gym_pool.cores() == 1
