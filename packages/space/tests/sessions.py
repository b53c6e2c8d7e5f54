"""Small runs for tests of sessions, and what the local engine makes of them."""

from __future__ import annotations

from functools import cache

import numpy as np

from fedpareto.contract import registry
from fedpareto.engines.options import LocalOptions
from fedpareto.spec import backends
from fedpareto.spec.spec import Spec
from fedpareto.testing.conformance import small_problem
from fedpareto_space.session.agreement import changed, terms_of
from fedpareto_space.session.drive import Finished, Plan, Simulation, result_digest
from fedpareto_space.session.events import Ask, Exchange
from fedpareto_space.session.learning import arrays_of


def small(name="fedavg", clients=2, rounds=2, **options):
    """A run of seconds' fractions; one thread and one client at a time, as a session computes."""
    algorithm = registry.make_algorithm(name)
    problem = small_problem(algorithm)
    engine = LocalOptions(threads=1, chunk=1)
    return Spec(algorithm, problem, problem.learner(), clients=clients, rounds=rounds, engine=engine, **options)


def on_the_local_engine(spec):
    """The digest of what its clients are sent at the end, and the models that they use."""
    engine = backends.local(spec)
    with engine.threads():
        state = spec.algorithm.begin(engine.settings[0])
        while state.round < spec.rounds:
            state = spec.algorithm.tell(state, engine.run(spec.algorithm.ask(state)).replies)
        solutions = spec.algorithm.solutions(state)
        models = {client: model.numpy() for client, model in engine.models(0, solutions).items()}
    asks = tuple(Ask(client, state.round, "", 0, arrays_of(solutions[client])) for client in solutions)
    return result_digest(Exchange(0, state.round, asks, over=True)), models


def simulated(spec=None, network=None, rows=None, **options) -> Finished:
    """A session, with some rows other than usual."""
    spec = spec or small()
    plan = Plan(spec, changed(terms_of(spec), **(rows or {})))
    return Simulation(plan, **({"network": network} if network else {}), **options).run()


@cache
def undisturbed(name="fedavg", clients=2, rounds=2):
    """The digest of an ordinary run."""
    return on_the_local_engine(small(name, clients, rounds))[0]


def same(models, others):
    """Whether all clients' models are equal, bit for bit."""
    return models.keys() == others.keys() and all(np.array_equal(models[one], others[one]) for one in models)
