"""The conformance suite: the rules that every algorithm and every problem must keep.

    from fedpareto.testing import check_algorithm
    check_algorithm(MyAlgorithm())

Each check raises an AssertionError that says which rule was broken and how."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, State, Taxonomy, model_sized, participant_count
from fedpareto.contract.federation import Federation
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import ByClient, Outcome, beginnings, places
from fedpareto.contract.problem import Problem, SupervisedProblem
from fedpareto.contract.reinforcement import ReinforcementProblem
from fedpareto.contract.taxonomy import COMPARISON, OUTSIDE
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.convex import Convex
from fedpareto.problems.synthetic import Synthetic
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.testing.problem_checks import EXACT, PLAY_CHECKS, PROBLEM_CHECKS, SINGLE, gap, losses_of
from fedpareto.testing.snapshots import clones, copied, equal, image, same_image
from fedpareto.testing.watched import ALLOWED, Watched, of_the_mean

ROUNDS, CLIENTS = 3, 7
"""A first round, one that begins with what clients kept, and a last one, which some methods treat differently."""
PARTLY = 0.6
"""The participation where only a part of the clients take part."""
STACKS = ((1.0, 2, "float64", EXACT), (PARTLY, 1, "float64", EXACT), (PARTLY, 3, "float32", SINGLE))
"""Participation, size of the stacks that are compared with one stack of all, precision and tolerance."""
STILL = 1e-12
"""A learning rate with which nothing is learnt."""


def check_algorithm(algorithm: Algorithm[Any], problem: Problem | None = None) -> None:
    """Everything the engines, the runner and the reports rely on; `problem` is a small one by default."""
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"check_algorithm takes an algorithm, such as FedAvg(), not {algorithm!r}")
    problem = problem or small_problem(algorithm)
    for check in ALGORITHM_CHECKS:
        _named(check, algorithm, problem)


def check_problem(problem: SupervisedProblem | ReinforcementProblem, clients: int = 3) -> None:
    """Everything the learners, the engines and the reports rely on."""
    if isinstance(problem, ReinforcementProblem):
        for play_check in PLAY_CHECKS:
            _named(play_check, problem, clients)
        return
    for check in PROBLEM_CHECKS:
        _named(check, problem, clients)


def _named(check: Callable[..., None], *given: Any) -> None:
    """Runs a check; what it finds begins with its name, by which docs/develop/add-an-algorithm.md explains it."""
    try:
        check(*given)
    except (AssertionError, UserError) as found:
        raise AssertionError(f"{check.__name__}: {found}") from found


@dataclasses.dataclass(frozen=True)
class People(Synthetic):
    """A group fairness problem, with little training."""

    def learner(self) -> Learner:
        """A few steps, less than an epoch."""
        return super().learner().probe()


def small_problem(algorithm: Algorithm[Any]) -> Problem:
    """One on which the algorithm works."""
    unequal = People(hidden=(4,), partition="dirichlet")
    return unequal if "groups" in algorithm.requires else Convex()


# -- running an algorithm ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Trial:
    """One run of an algorithm, all exchanges kept."""

    engine: LocalEngine
    states: list[Any]
    outcomes: list[Outcome]

    @property
    def models(self) -> ByClient:
        """Each client's model at the end."""
        return self.engine.models(0, self.engine.algorithm.solutions(self.states[-1]))


def trial(
    algorithm: Algorithm[Any],
    problem: Problem,
    *,
    chunk: int = CLIENTS,
    precision: str = "float64",
    participation: float = 1.0,
    seed: int = 3,
    federation: Federation | None = None,
    rounds: int = ROUNDS,
    learner: Learner | None = None,
) -> Trial:
    """Runs `algorithm` on a federation of unequal clients, in stacks of `chunk`."""
    federation = federation or Federation.create(problem, CLIENTS, seed, "dirichlet")
    setting = federation.setting(problem, rounds, participation)
    options = LocalOptions(precision=precision)  # type: ignore[arg-type]
    choices = Choices(threads=1, chunk=chunk)
    learner = learner or problem.learner()
    engine = LocalEngine(algorithm, problem, learner, [federation], [setting], options, choices=choices)
    state: State = algorithm.begin(engine.settings[0])
    done = Trial(engine, [state], [])
    while state.round < rounds:
        done.outcomes.append(engine.run(algorithm.ask(state)))
        state = algorithm.tell(state, done.outcomes[-1].replies)
        done.states.append(state)
        assert len(done.states) < 20 * rounds, f"{algorithm.name}: `tell` does not advance the round"
    return done


@dataclasses.dataclass
class _Kept:
    """The trials of one algorithm on one problem that several checks look at: each is run once."""

    subject: tuple[Algorithm[Any], Problem] | None = None
    trials: dict[tuple[float, str, int], Trial] = dataclasses.field(default_factory=dict)


_KEPT = _Kept()


def _plain(
    algorithm: Algorithm[Any],
    problem: Problem,
    participation: float = 1.0,
    precision: str = "float64",
    rounds: int = ROUNDS,
) -> Trial:
    """All clients in one stack. Kept until another algorithm or problem is checked."""
    if _KEPT.subject is None or _KEPT.subject[0] is not algorithm or _KEPT.subject[1] is not problem:
        _KEPT.subject, _KEPT.trials = (algorithm, problem), {}
    address = participation, precision, rounds
    if address not in _KEPT.trials:
        _KEPT.trials[address] = trial(
            algorithm, problem, participation=participation, precision=precision, rounds=rounds
        )
    return _KEPT.trials[address]


def largest_difference(first: Mapping[int, Tensor], second: Mapping[int, Tensor]) -> float:
    """Between two sets of models, by client."""
    assert first.keys() == second.keys(), "the two runs have models for different clients"
    return max(gap(first[client], second[client]) for client in first)


# -- algorithms ----------------------------------------------------------------------------------------------------


def says_what_it_is(algorithm: Algorithm[Any], problem: Problem) -> None:
    """A name in lower case with hyphens, taxonomy labels, and frozen hyper-parameters with defaults."""
    is_name = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*(\+ft|\+safe)?", algorithm.name)
    assert is_name, f"'{algorithm.name}' is no lower-case name"
    assert isinstance(algorithm.taxonomy, Taxonomy), f"{algorithm.name} has no taxonomy labels"
    assert all(dataclasses.asdict(algorithm.taxonomy).values()), f"{algorithm.name} leaves a taxonomy label empty"
    assert algorithm.taxonomy.is_known, (
        f"{algorithm.name}: '{algorithm.taxonomy.place}' is no box of the taxonomy (see contract.taxonomy); a method "
        f"without one is '{OUTSIDE}', '{COMPARISON}'"
    )
    parameters: Any = type(algorithm)
    assert dataclasses.is_dataclass(algorithm), f"{algorithm.name} is no dataclass"
    assert parameters.__dataclass_params__.frozen, f"{algorithm.name} is not a frozen dataclass"
    written = inspect.cleandoc(algorithm.__doc__ or "")
    has_own = written != "" and not written.startswith(f"{parameters.__name__}(")  # A dataclass writes one of its own.
    assert has_own, f"{algorithm.name} has no docstring"
    annotated = inspect.get_annotations(parameters)
    missing = [
        name for name, kind in annotated.items() if "ClassVar" not in str(kind) and not _is_field(parameters, name)
    ]
    assert not missing, (
        f"{algorithm.name}: {', '.join(missing)} is no hyper-parameter; is @dataclass(frozen=True) missing?"
    )


def _is_field(cls: Any, name: str) -> bool:
    return name in {field.name for field in dataclasses.fields(cls)}


def asking_is_pure(algorithm: Algorithm[Any], problem: Problem) -> None:
    """Asking twice gives the same tasks, for known clients, with messages of plain tensors; the state stays."""
    done = _plain(algorithm, problem)
    for state in done.states[:-1]:
        before = image(state)
        first = [copied(tasks) for tasks in algorithm.ask(state)]
        second = algorithm.ask(state)
        assert same_image(before, image(state)), f"{algorithm.name}: `ask` changes the state in place"
        assert len(first) == len(second) > 0, f"{algorithm.name} asks for different work when asked twice"
        for one, other in zip(first, second, strict=True):
            assert (one.step, one.lane, one.round) == (other.step, other.lane, other.round)
            assert np.array_equal(one.clients, other.clients), f"{algorithm.name} asks other clients when asked twice"
            unknown = np.setdiff1d(one.clients, state.setting.clients)
            assert not len(unknown), f"{algorithm.name} addresses an unknown client {unknown[0]}"
            assert (np.diff(one.clients) > 0).all(), f"{algorithm.name}: the clients of a stack are in ascending order"
            assert one.round == state.round + 1, f"{algorithm.name}: a task's round is the number of the current round"
            assert one.step == first[0].step, f"{algorithm.name}: all tasks of an exchange name one step"
            assert one.names == other.names
            rows = {name: len(tensor) for name, tensor in one.own.items()}
            assert set(rows.values()) <= {len(one)}, f"{algorithm.name}: {rows} rows of its own for {len(one)} clients"
            for name, tensor in one.stacked().items():
                assert torch.equal(tensor, other.stacked()[name]), f"{algorithm.name}: asking twice changed '{name}'"


def telling_makes_a_new_state(algorithm: Algorithm[Any], problem: Problem) -> None:
    """The state that `tell` receives stays as it was, and so do the replies: a round can be repeated."""
    done = _plain(algorithm, problem)
    state = algorithm.begin(done.engine.settings[0])
    for outcome in done.outcomes:
        before, replies = image(state), clones(outcome.replies.tensors)
        told = algorithm.tell(state, outcome.replies)
        assert same_image(before, image(state)), f"{algorithm.name}: `tell` changes the state in place"
        assert equal(outcome.replies.tensors, replies), f"{algorithm.name}: `tell` changes replies in place"
        state = told


def replies_are_accepted(algorithm: Algorithm[Any], problem: Problem) -> None:
    """Client steps return exactly what the algorithm declared, so no engine refuses it."""
    for outcome in _plain(algorithm, problem).outcomes:
        assert not outcome.failures, f"{algorithm.name}: {outcome.failures[0]}"


def solves_for_everyone(algorithm: Algorithm[Any], problem: Problem) -> None:
    """Every client has a finite model at every time, and it moves."""
    done = _plain(algorithm, problem)
    initial = done.states[0].setting.initial
    for state in (done.states[0], done.states[-1]):
        models = done.engine.models(0, algorithm.solutions(state))
        assert sorted(models) == state.setting.clients.tolist(), f"{algorithm.name} leaves clients without a solution"
        assert all(model.shape[-1:] == initial.shape and model.isfinite().all() for model in models.values())
    moved = max(float((model - initial).abs().max()) for model in done.models.values())
    assert moved > 0, f"{algorithm.name} learns nothing"


def stack_equals_loop(algorithm: Algorithm[Any], problem: Problem) -> None:
    """Any chunk size, one client at a time included, gives the same models, also with partial participation."""
    for participation, chunk, precision, tolerance in STACKS:
        whole = _plain(algorithm, problem, participation, precision).models
        parts = trial(algorithm, problem, precision=precision, participation=participation, chunk=chunk).models
        difference = largest_difference(whole, parts)
        assert difference <= tolerance, (
            f"{algorithm.name}: stacks of {chunk} differ from one stack by {difference:.1e} in {precision} "
            f"at participation {participation}"
        )


def same_seed_same_bits(algorithm: Algorithm[Any], problem: Problem) -> None:
    """Two runs with one seed are bit-identical; with another seed they are not."""
    first = _plain(algorithm, problem, PARTLY).models
    second = trial(algorithm, problem, participation=PARTLY).models
    assert largest_difference(first, second) == 0, f"{algorithm.name}: the same seed gave different bits"
    other = trial(algorithm, problem, participation=PARTLY, seed=4).models
    assert largest_difference(first, other) > 0, f"{algorithm.name} ignores the seed"


def order_does_not_matter(algorithm: Algorithm[Any], problem: Problem) -> None:
    """Reordering the clients, each keeping its id, only reorders the result."""
    federation = Federation.create(problem, CLIENTS, 3, "dirichlet")
    order = [4, 0, 6, 2, 5, 1, 3]
    straight = _plain(algorithm, problem).models
    shuffled = trial(algorithm, problem, federation=federation.reordered(order)).models
    difference = largest_difference(straight, shuffled)
    assert difference <= EXACT, f"{algorithm.name}: reordering the clients changed their models by {difference:.1e}"


def missing_replies_are_borne(algorithm: Algorithm[Any], problem: Problem) -> None:
    """With a single reply of several the round still ends, and everyone still has a model."""
    done = _plain(algorithm, problem, rounds=1)
    state = done.states[0]
    for outcome in done.outcomes:
        state = algorithm.tell(state, outcome.replies.only(np.arange(1)))
    assert state.round == 1, f"{algorithm.name} cannot end a round on one reply"
    models = done.engine.models(0, algorithm.solutions(state))
    assert all(model.isfinite().all() for model in models.values())


def only_participants_are_asked(algorithm: Algorithm[Any], problem: Problem) -> None:
    """With partial participation no round but the last selects more clients than take part."""
    most = participant_count(PARTLY, CLIENTS)
    for outcome in _plain(algorithm, problem, PARTLY).outcomes:
        asked = np.unique(outcome.replies.clients[outcome.replies.rounds < ROUNDS])
        assert len(asked) <= most, (
            f"{algorithm.name} asks {len(asked)} clients at participation {PARTLY} of {CLIENTS}; `participants` "
            f"draws {most}"
        )


def training_goes_down(algorithm: Algorithm[Any], problem: Problem) -> None:
    """After a few rounds the clients' losses under their own preferences are lower on average than at the start."""
    if not isinstance(problem, Convex):
        return  # On other problems a few rounds may not be enough for every method.
    done = _plain(algorithm, problem)
    clients = done.engine._probe(CLIENTS)
    initial = done.states[0].setting.initial
    start, end = (
        float((losses_of(clients, models) * clients.preferences).sum(dim=1).mean())
        for models in (
            initial.expand(CLIENTS, -1),
            torch.stack([done.models[client] for client in clients.addresses.client.tolist()]),
        )
    )
    assert end < start, f"{algorithm.name} raises the clients' loss from {start:.4f} to {end:.4f}"


def only_replies_count(algorithm: Algorithm[Any], problem: Problem) -> None:
    """If the three of seven clients that reply did not move, no model does: a mean is over the clients that replied."""
    engine = _plain(algorithm, problem, rounds=1).engine
    noise = torch.randn(problem.layout.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state = algorithm.begin(dataclasses.replace(engine.settings[0], initial=noise))
    tasks = algorithm.ask(state)
    replies = engine.run(tasks).replies.only(np.arange(3))
    begun = beginnings(tasks[0].only(places(tasks[0].clients, replies.clients)), replies.tensors)
    if not begun or replies.step != "train" or len(tasks) > 1:
        return  # A round of several exchanges, or nothing to average.
    unmoved = dataclasses.replace(replies, tensors={**replies.tensors, **begun})
    told = algorithm.solutions(algorithm.tell(state, unmoved))
    for client, message in algorithm.solutions(state).items():
        for name in message.keys() & {"model", "models", "body"}:
            difference = gap(message[name], told[client][name])
            assert difference <= EXACT, (
                f"{algorithm.name}: three clients of {CLIENTS} reply that they did not move, and '{name}' moves by "
                f"{difference:.1e}; is something divided by the number of all clients?"
            )


def reads_what_it_declares(algorithm: Algorithm[Any], problem: Problem) -> None:
    """`tell` reads no more of tensors that grow with the model than its `needs`."""
    done = _plain(algorithm, problem)
    state = algorithm.begin(done.engine.settings[0])
    for outcome in done.outcomes:
        replies = Watched.of_replies(outcome.replies, model_sized(algorithm, state.setting, outcome.replies.step))
        state = algorithm.tell(state, replies)
        more = sorted(replies.read - ALLOWED[algorithm.needs])
        assert not more, (
            f"{algorithm.name} needs a {algorithm.needs} of its replies, but in the step {replies.step} `tell` also "
            f"reads: {', '.join(more)}; does it need all rows?"
        )


def a_mean_says_it_all(algorithm: Algorithm[Any], problem: Problem) -> None:
    """An algorithm that says that a mean or a sum is all that `tell` needs makes the same of as many copies of the
    mean.
    """
    if not (algorithm.averages or (algorithm.sums and type(algorithm).summand is Algorithm.summand)):
        return
    done = _plain(algorithm, problem)
    for state, outcome in zip(done.states, done.outcomes, strict=False):
        told, same = (algorithm.tell(state, one) for one in (outcome.replies, of_the_mean(outcome.replies)))
        wanted, found = (done.engine.models(0, algorithm.solutions(one)) for one in (told, same))
        difference = largest_difference(wanted, found)
        assert difference <= EXACT, (
            f"{algorithm.name} declares that the mean of replies is all it needs (averages or sums), but as many "
            f"copies of their mean give other models, {difference:.1e} apart; noise on a mean would not protect it"
        )


def preferences_stay_private(algorithm: Algorithm[Any], problem: Problem) -> None:
    """No reply says what the client's preference is: without training it is the same under any preference.

    What an algorithm declares in `reveals` is left out.
    """
    learner = problem.learner()
    if not isinstance(learner, Supervised):
        return
    still = dataclasses.replace(learner, lr=STILL)
    replies = []
    for seed in (0, 1):
        federation = Federation.create(problem, CLIENTS, 3, "dirichlet")
        preferences = np.random.default_rng(seed).dirichlet(np.ones(len(problem.objectives)), size=CLIENTS)
        federation = dataclasses.replace(federation, preferences=preferences)
        done = trial(algorithm, problem, federation=federation, rounds=1, learner=still)
        replies.append([outcome.replies for outcome in done.outcomes])
    for one, other in zip(*replies, strict=True):
        for name in one.tensors.keys() - set(algorithm.reveals):
            difference = gap(one[name], other[name])
            assert difference <= SINGLE, (
                f"{algorithm.name}: '{name}' of the step {one.step} differs by {difference:.1e} between two "
                "preferences though nothing was trained: it gives the preference away"
            )


def state_survives_a_file(algorithm: Algorithm[Any], problem: Problem) -> None:
    """A state written to a checkpoint and read again continues to the same bits."""
    done = _plain(algorithm, problem)
    half = next(state for state in done.states if state.round == 2)
    saved = Checkpoint()
    saved.put_state(half, "state/")
    with TemporaryDirectory() as folder:
        saved.save(Path(folder) / "checkpoint.safetensors")
        loaded = Checkpoint.load(Path(folder) / "checkpoint.safetensors")
    restored = loaded.get_state(algorithm.begin(half.setting), "state/")
    for one, other in zip(algorithm.ask(half), algorithm.ask(restored), strict=True):
        assert np.array_equal(one.clients, other.clients)
        for name, tensor in one.stacked().items():
            assert torch.equal(tensor, other.stacked()[name]), f"{algorithm.name}: '{name}' changed in a checkpoint"


ALGORITHM_CHECKS: Sequence[Callable[[Algorithm[Any], Problem], None]] = (
    says_what_it_is,
    # First of those that run it: a state that changed under the others would break them in other words.
    telling_makes_a_new_state,
    asking_is_pure,
    replies_are_accepted,
    solves_for_everyone,
    same_seed_same_bits,
    stack_equals_loop,
    order_does_not_matter,
    missing_replies_are_borne,
    only_participants_are_asked,
    training_goes_down,
    only_replies_count,
    reads_what_it_declares,
    a_mean_says_it_all,
    preferences_stay_private,
    state_survives_a_file,
)
