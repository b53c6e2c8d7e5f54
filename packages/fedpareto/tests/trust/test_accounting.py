"""ε in a hundred settings against an accountant that shares nothing with ours: it may be larger, never smaller."""

from __future__ import annotations

import numpy as np
import pytest
from numerical_accountant import Pair, gaussian_epsilon
from numerical_accountant import epsilon as numerical

from fedpareto.algorithms.wrappers.private import protected
from fedpareto.contract.privacy import Exposure, Privacy, epsilon
from fedpareto.contract.registry import make_algorithm
from fedpareto.problems.convex import Convex
from fedpareto.testing.conformance import CLIENTS, trial

SETTINGS = 50
TOLERANCE = 2e-4
"""Relative, of the numerical accountant: its own ε are that much too large, by its grid."""


def shifted(ratio):
    """A Gaussian mechanism whose sensitivity is `ratio` times the deviation of its noise."""
    return Pair([(1.0, ratio)], [(1.0, 0.0)], 1.0)


def instances(share, noise):
    """Federations in which a client that is in the sample with this probability changes the sum by C: the others send
    nothing, or all the same against it, so that one of them is away whenever the client is there.
    """
    yield Pair([(1 - share, 0.0), (share, 1.0)], [(1.0, 0.0)], noise)
    yield Pair([(1.0, 0.0)], [(1 - share, 0.0), (share, -1.0)], noise)
    yield Pair([(1 - share, 0.0), (share, 2.0)], [(1 - share, 0.0), (share, 1.0)], noise)
    yield Pair([(1 - share, 0.0), (share, -1.0)], [(1 - share, 0.0), (share, -2.0)], noise)


def known_settings():
    """Kinds, noise, replies, reports, seeds and δ of federations in which everybody knows who took part."""
    stream = np.random.default_rng(25)
    for number in range(SETTINGS):
        kind = ("central", "local")[number % 2]
        replies, seeds = int(stream.integers(1, 60)), int(stream.integers(1, 5))
        noise = float(stream.uniform(0.8, 4)) * np.sqrt(replies * seeds) / 3
        reports = int(stream.integers(0, 20)) * (number % 3 > 0)
        delta = 10.0 ** -int(stream.integers(3, 8))
        yield kind, noise, replies * seeds, reports * seeds, float(stream.uniform(2, 20)), delta


@pytest.mark.takes_long
def test_what_everybody_gives_away_adds_up_as_numerical_integration_says():
    ratios = []
    for kind, noise, replies, reports, of_reports, delta in known_settings():
        privacy = Privacy(kind, noise=noise, delta=delta, objectives="noised", objectives_noise=of_reports)
        ours = epsilon(privacy, Exposure(replies, replies, 5, 5, reports=reports))
        ratio = 2 / noise if kind == "local" else 1 / noise
        pairs = [(shifted(ratio), replies), (shifted(1 / of_reports), reports)]
        theirs = numerical([pair for pair in pairs if pair[1]], delta)
        ratios.append(ours / theirs)
        cost = replies * ratio**2 + reports / of_reports**2
        assert ours == pytest.approx(gaussian_epsilon(cost, delta), rel=1e-6), (kind, noise, replies, reports, delta)
    assert len(ratios) == SETTINGS
    assert 1 - TOLERANCE < min(ratios) <= max(ratios) < 1 + TOLERANCE


def sampled_settings():
    """Noise, rounds, clients in a round, all clients, reports and δ where only the server knows who took part."""
    stream = np.random.default_rng(52)
    yield 4.0, 200, 10, 100, 0, 1e-5
    for number in range(SETTINGS - 1):
        clients = int(stream.choice([10, 30, 100, 300, 1000]))
        sampled = max(1, int(clients * stream.choice([0.01, 0.03, 0.1, 0.3, 0.6])))
        reports = int(stream.integers(0, 4)) * (number % 4 == 0)
        yield (
            float(stream.choice([1.0, 2.0, 3.0, 4.0, 6.0, 10.0])),
            int(stream.choice([1, 5, 20, 50, 200])),
            sampled,
            clients,
            reports,
            10.0 ** -int(stream.integers(4, 7)),
        )


@pytest.mark.takes_long
def test_secret_participants_never_cost_less_than_numerical_integration_says():
    ratios = []
    for noise, rounds, sampled, clients, reports, delta in sampled_settings():
        privacy = Privacy("central", noise=noise, delta=delta, participants="secret", objectives="noised")
        ours = epsilon(privacy, Exposure(rounds, rounds, sampled, clients, reports=reports))
        told = [(shifted(1.0), reports)] if reports else []
        worst = max(numerical([(one, rounds), *told], delta) for one in instances(sampled / clients, noise))
        assert ours >= (1 - TOLERANCE) * worst, (noise, rounds, sampled, clients, reports, delta)
        ratios.append(ours / worst)
    assert len(ratios) == SETTINGS
    assert np.median(ratios) < 10, "a bound that says nothing would pass, too"


@pytest.mark.parametrize(
    ("name", "parameters", "tasks"),
    [("fedpref", {}, 1), ("fedcmoo", {}, 2), ("mofld", {"samples": 2, "training_rounds": 1}, 4)],
)
def test_every_task_that_a_client_was_given_counts(name, parameters, tasks):
    """Participants as they were drawn, exchanges, candidates and seeds; against the tasks themselves."""
    privacy = Privacy("local", noise=20.0)
    algorithm = protected(make_algorithm(name, parameters), privacy)
    done = trial(algorithm, Convex(), participation=0.4)
    given = np.zeros(CLIENTS, dtype=int)
    for state in done.states[:-1]:
        for some in algorithm.ask(state):
            np.add.at(given, some.clients, 1)
    assert given.sum() == 3 * 3 * tasks, "three of seven clients in each of three rounds"
    found = algorithm.describe(done.states[-1])["epsilon"]
    assert found == pytest.approx(gaussian_epsilon(int(given.max()) * (2 / 20) ** 2, privacy.delta), rel=1e-6)
