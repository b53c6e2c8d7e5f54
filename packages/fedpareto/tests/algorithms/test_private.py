"""Clipped updates and noise around algorithms: what leaves a client, and what is refused."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.cfl import CFL
from fedpareto.algorithms.clustered.fedpref import FedPref
from fedpareto.algorithms.wrappers.private import Private, protected
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import State, participants, small_setting
from fedpareto.contract.messages import places
from fedpareto.contract.privacy import Exposure, Privacy, epsilon
from fedpareto.contract.registry import make_algorithm
from fedpareto.problems.convex import Convex
from fedpareto.spec.draft import Draft, load
from fedpareto.tensors.rng import Addresses
from fedpareto.testing.conformance import (
    ALGORITHM_CHECKS,
    CLIENTS,
    largest_difference,
    missing_replies_are_borne,
    only_replies_count,
    replies_are_accepted,
    stack_equals_loop,
    state_survives_a_file,
    trial,
)
from fedpareto.trust.hiding import Hiding, clipped, draws

CONVEX = Convex()
EQUAL = {"weighting": "equal"}
ADDRESSES = Addresses.at(0, np.arange(4), round=1)
ALLOWED = {
    ("fedavg", "central"): EQUAL,
    ("fedprox", "central"): EQUAL,
    ("fedavg", "local"): EQUAL,
    ("fedprox", "local"): EQUAL,
    ("fedpref", "local"): {},
    ("cfl", "local"): {},
    ("mat-fl", "local"): {},
    ("fedavg+ft", "central"): EQUAL,
    ("fedpref+ft", "local"): {},
}
MORE = {
    ("fsmgda", "central"): {},
    ("praffl", "central"): {"body_epochs": 1, "head_epochs": 1, "sampled": 4},
    ("fsmgda+ft", "local"): {},
    ("fedcmoo", "local"): {},
    ("fedcmoo-pref", "local"): {},
    ("fedfew", "local"): EQUAL,
    ("ifca", "local"): {},
    ("ifca+ft", "local"): {},
    ("q-fedavg", "local"): {},
    ("afl", "local"): {},
    ("scaffold", "local"): EQUAL,
    ("mofld", "local"): {"samples": 2, "training_rounds": 1},
}
"""Whose clients send more than one model, or something else; some of the checks are enough for them."""
BY_ROWS = ("mofld",)
"""Who weigh clients by their rows otherwise."""
SOME_CHECKS = (replies_are_accepted, stack_equals_loop, missing_replies_are_borne, state_survives_a_file)


@functools.cache
def private(name, kind, **values):
    """One of each: the checks of an algorithm share its trials."""
    parameters = (ALLOWED | MORE).get((name, kind), {})
    return protected(make_algorithm(name, parameters), Privacy(kind, **values))


def updates(done, exchange=0):
    """What the replies of one exchange say about each client's update, `[n, d]`."""
    (asked,), replies = done.engine.algorithm.ask(done.states[exchange]), done.outcomes[exchange].replies
    return replies["model"] - asked.only(places(asked.clients, replies.clients)).stacked()["model"]


# -- the contract --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ALGORITHM_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("name", "kind"), ALLOWED)
def test_a_private_algorithm_keeps_the_contract(name, kind, check):
    noise = 0.0 if check is only_replies_count else 0.1  # Noise on the mean moves a model that nobody moved.
    check(private(name, kind, clip=0.5, noise=noise), CONVEX)


@pytest.mark.parametrize(("name", "kind"), MORE)
def test_a_private_algorithm_whose_replies_are_more_than_a_model_keeps_the_contract_too(name, kind):
    for check in SOME_CHECKS:
        check(private(name, kind, clip=0.5, noise=0.1), CONVEX)


@pytest.mark.parametrize(
    ("name", "kind"), [pair for pair in ALLOWED | MORE if not pair[0].endswith("+ft") and pair[0] not in BY_ROWS]
)
def test_without_clip_and_noise_it_is_the_algorithm_itself_to_the_last_bit(name, kind):
    plain = trial(make_algorithm(name, (ALLOWED | MORE)[name, kind]), Convex(), participation=0.6)
    open_ = trial(private(name, kind, clip=math.inf, noise=0.0, largest_loss=1e9), Convex(), participation=0.6)
    assert largest_difference(plain.models, open_.models) == 0


# -- clip ----------------------------------------------------------------------------------------------------------


def test_no_update_that_leaves_a_client_is_longer_than_the_clip():
    free = updates(trial(private("fedpref", "local", clip=math.inf, noise=0.0), Convex(), rounds=1))
    bound = float(free.norm(dim=1).median())
    bounded = updates(trial(private("fedpref", "local", clip=bound, noise=0.0), Convex(), rounds=1))
    assert bounded.norm(dim=1).max() <= bound * (1 + 1e-12)
    longer = free.norm(dim=1) > bound
    assert longer.any()
    assert torch.equal(bounded[~longer], free[~longer])
    torch.testing.assert_close(torch.cosine_similarity(bounded, free), torch.ones(CLIENTS).double())


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e5, 1e9])
def test_the_clip_holds_in_single_precision_however_large_the_model_is(size):
    random = np.random.default_rng(0)
    received = torch.as_tensor(size * random.standard_normal((50, 200))).float()
    trained = received + torch.as_tensor(10 * random.standard_normal((50, 200))).float()
    moved = clipped(received, trained, 1.0).double() - received.double()
    assert moved.norm(dim=1).max() <= 1 + 1e-12
    if size <= 1:
        assert moved.norm(dim=1).min() > 0.999


def test_an_update_of_length_zero_stays_one():
    model = torch.ones(2, 3)
    assert torch.equal(clipped(model, model, 0.1), model)


# -- noise ---------------------------------------------------------------------------------------------------------


def test_noise_has_the_deviation_that_was_asked_for():
    hiding, draw = Hiding(Privacy("local", noise=2.2), {"model": "update"}, None, {}), draws(Privacy(), ADDRESSES)
    still = torch.zeros(4, 50_000).double()
    noise = hiding.hidden({"model": still}, {"model": still}, draw)["model"]
    count = noise.numel()
    assert abs(float(noise.mean())) < 5 * 2.2 / math.sqrt(count)
    assert float(noise.var()) == pytest.approx(2.2**2, rel=5 * math.sqrt(2 / count))
    assert abs(float(torch.corrcoef(noise)[0, 1])) < 5 / math.sqrt(50_000)


def noise_of(kind, rounds=400, **values):
    """By round, what the noise adds to the mean model; of updates whose true length is 0."""
    still = replace(Convex().learner(), lr=1e-300)
    algorithm = private("fedavg", kind, **values)
    done = trial(algorithm, Convex(), learner=still, rounds=rounds)
    models = torch.stack([algorithm.solutions(state)[0]["model"] for state in done.states])
    return models.diff(dim=0)


@pytest.mark.takes_long
@pytest.mark.parametrize(("kind", "divisor"), [("central", CLIENTS), ("local", math.sqrt(CLIENTS))])
def test_the_mean_model_carries_the_noise_of_its_kind(kind, divisor):
    """Central zC/n; local zC/√n, the mean of n independent draws of zC."""
    steps = noise_of(kind, clip=0.5, noise=2.0)
    wanted = (2.0 * 0.5 / divisor) ** 2
    assert float(steps.var()) == pytest.approx(wanted, rel=5 * math.sqrt(2 / steps.numel()))


def test_local_noise_is_in_every_reply_and_central_noise_in_none():
    plain, local, central = (
        updates(trial(algorithm, Convex(), rounds=1))
        for algorithm in (
            private("fedavg", "local", clip=math.inf, noise=0.0),
            private("fedavg", "local", clip=1e6, noise=1e-6),
            private("fedavg", "central", clip=1e6, noise=1e-6),
        )
    )
    assert torch.equal(central, plain)
    noise = local - plain
    assert (noise.abs() > 0).all()
    assert len({tuple(row.tolist()) for row in noise}) == CLIENTS


@pytest.mark.parametrize("kind", ["central", "local"])
def test_secret_noise_differs_between_two_runs_of_the_same_seed(kind):
    one, other = (trial(private("fedavg", kind, randomness="system"), Convex(), rounds=1).models for _ in range(2))
    assert largest_difference(one, other) > 0


def test_central_noise_is_divided_by_the_replies_that_came():
    """(Σ_i Δ_i + N(0, (zC)²)) / n over the n of them, with the same draw whoever they are."""
    found = []
    for came in ([0, 1, 2, 3, 4, 5, 6], [1, 4, 5]):
        models = []
        for noise in (0.0, 2.0):
            algorithm = private("fedavg", "central", clip=0.5, noise=noise)
            done = trial(algorithm, Convex(), rounds=1)
            models.append(algorithm.tell(done.states[0], done.outcomes[0].replies.only(np.array(came))).inner.model)
        found.append(len(came) * (models[1] - models[0]))
    torch.testing.assert_close(*found)
    assert found[0].abs().min() > 0


# -- epsilon -------------------------------------------------------------------------------------------------------


def test_epsilon_is_described_every_round_and_counts_who_was_asked():
    algorithm = private("fedpref", "local", noise=1.0)
    whole, part = (trial(algorithm, Convex(), participation=share, rounds=5) for share in (1.0, 0.3))
    values = [algorithm.describe(state)["epsilon"] for state in whole.states]
    assert values == sorted(values)
    assert "clusters" in algorithm.describe(whole.states[-1])
    assert int(part.states[-1].asked.max()) < 5
    assert algorithm.describe(part.states[-1])["epsilon"] < values[-1]


@pytest.mark.parametrize("kind", ["central", "local"])
def test_who_was_asked_counts_once_each_time_whether_its_reply_came_or_not(kind):
    algorithm = private("fedavg", kind)
    done = trial(algorithm, Convex(), rounds=1, participation=0.6)
    state, replies = done.states[0], done.outcomes[0].replies
    few = replies.only(np.arange(1))
    asked = np.bincount(replies.clients, minlength=CLIENTS)
    assert algorithm.tell(state, few).asked.tolist() == asked.tolist()
    again = replace(few, asked=np.array([5, 2, 5]))
    twice = algorithm.tell(algorithm.tell(state, again), replace(few, asked=np.array([0])))
    assert twice.asked.tolist() == [1, 0, 1, 0, 0, 2, 0], "where rounds do not wait, one may be asked twice in between"


def test_those_who_were_asked_count_for_the_noise_that_their_sum_lacks():
    """Of five who were asked ⌈0.7 · 5⌉ = 4 have the whole noise; two who replied have half of it."""
    algorithm = protected(FedAvg("equal"), Privacy("distributed", noise=1.0))
    done = trial(FedAvg("equal"), Convex(), rounds=1, participation=0.6)
    state, replies = algorithm.begin(done.states[0].setting), done.outcomes[0].replies
    others = [client for client in range(CLIENTS) if client not in replies.clients]
    assert len(others) == CLIENTS - 5
    for came, times in ((5, 1.0), (4, 1.0), (2, 2.0), (1, 4.0)):
        told = algorithm.tell(state, replies.only(np.arange(came)))
        assert told.asked[replies.clients].tolist() == [times] * 5
        assert told.asked[others].tolist() == [0.0] * 2


def test_epsilon_is_that_of_all_seeds_together_because_they_train_on_the_same_rows():
    import fedpareto

    privacy = Privacy("local", noise=1.1)
    one, three = (
        fedpareto.run("convex", "fedpref", clients=3, rounds=5, seeds=seeds, privacy=privacy).epsilon
        for seeds in ([0], [0, 1, 2])
    )
    assert one == epsilon(privacy, Exposure(5, 5, 3, 3))
    assert three == epsilon(privacy, Exposure(15, 15, 3, 3))
    assert three > 2 * one


def test_epsilon_of_seeds_bounds_that_of_a_party_whichever_client_it_is_in_each():
    import fedpareto

    privacy, seeds, rounds = Privacy("central", noise=1.5), (0, 1, 2), 5
    common = {"clients": 5, "participation": 0.6, "rounds": rounds, "seeds": list(seeds)}
    found = fedpareto.run("convex", FedAvg("equal"), privacy=privacy, **common).epsilon
    settings = [replace(small_setting(), seed=seed, clients=np.arange(5), participation=0.6) for seed in seeds]
    often = [
        np.bincount(np.concatenate([participants(State(one, round=done)) for done in range(rounds)]), minlength=5)
        for one in settings
    ]
    same_client, any_client = int(np.sum(often, axis=0).max()), sum(int(one.max()) for one in often)
    assert (same_client, any_client, max(int(one.max()) for one in often)) == (10, 14, 5)
    assert found == epsilon(privacy, Exposure(15, 15, 3, 5)) == pytest.approx(13.76, abs=0.01)
    assert found > epsilon(privacy, Exposure(any_client, 15, 3, 5)) == pytest.approx(13.17, abs=0.01)


def test_a_tuned_model_stays_with_its_client_and_costs_no_privacy():
    algorithm = private("fedavg+ft", "central", clip=0.01, noise=1.0)
    done = trial(algorithm, Convex())
    assert done.outcomes[-1].replies.tensors == {}
    before, after = (algorithm.describe(state)["epsilon"] for state in done.states[-2:])
    assert before == after > 0
    shared = algorithm.solutions(done.states[-2])[0]["model"]
    moved = torch.stack([model - shared for model in done.models.values()]).norm(dim=1)
    assert moved.max() > 0.01, "what stays needs no clip"


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("fedpref", "central", "each client's own reply"),
        ("cfl", "central", "each client's own reply"),
        ("mat-fl", "central", "each client's own reply"),
        ("fedcmoo", "central", "each client's own reply"),
        ("q-fedavg", "central", "each client's own reply"),
        ("afl", "central", "each client's own reply"),
        ("ifca", "central", "each client's own reply"),
        ("mofld", "central", "each client's own reply"),
        ("fedfew", "local", "weighting=equal"),
        ("lft-ensemble", "local", "more steps"),
        ("fedfb", "local", "losses, mass, rows"),
        ("local", "local", "send nothing"),
        ("fedavg", "local", "weighting=equal"),
        ("fedavg+ft", "central", "weighting=equal"),
    ],
)
def test_what_noise_would_not_protect_is_refused_with_the_reason(name, kind, why):
    with pytest.raises(UserError, match=why) as refused:
        Draft({"algorithm": name, "privacy": {"kind": kind}}).finish()
    assert f"privacy.kind={kind} does not fit {name.removesuffix('+ft')}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_would_be_refused_too_is_not_advised():
    """FedFew's server needs each client's own losses whatever its weighting."""
    with pytest.raises(UserError, match="number of rows") as refused:
        Draft({"algorithm": "fedfew", "privacy": {"kind": "central"}}).finish()
    assert "equal" not in str(refused.value)


@pytest.mark.parametrize("name", ["fedasync", "praffl", "ifca", "mofld", "fedpref", "q-fedavg"])
def test_what_privacy_does_not_change_is_the_algorithms_own(name):
    own = make_algorithm(name, (ALLOWED | MORE).get((name, "local"), {}))
    around = protected(own, Privacy("local"))
    for what in ("needs", "sums", "ends_as_planned", "reply_limits"):
        assert getattr(around, what) == getattr(own, what)
    reply, begun, now = ({"model": torch.full((2, 3), value)} for value in (5.0, 1.0, 2.0))
    late = [one.refreshed(reply, begun, now, torch.tensor([1.0, 0.5]))["model"] for one in (own, around)]
    assert torch.equal(*late)
    assert protected(around, Privacy("local")) is around
    assert not hasattr(around, "no_step_of_it")


def test_an_algorithm_with_several_exchanges_a_round_is_refused():
    class Hesitant(FedAvg):
        averages = True

        def tell(self, state, replies):
            return state

    done = trial(FedAvg(weighting="equal"), Convex(), rounds=1)
    algorithm = Private(Hesitant(weighting="equal"), Privacy("central"))
    with pytest.raises(UserError, match="several exchanges"):
        algorithm.tell(algorithm.begin(done.states[0].setting), done.outcomes[0].replies)


# -- specs ---------------------------------------------------------------------------------------------------------


def test_a_spec_with_privacy_reads_back(tmp_path):
    settings = ["weighting=equal", "privacy.kind=central", "privacy.clip=2", "privacy.noise=1.1"]
    spec = Draft({"algorithm": "fedavg+ft"}).with_settings(settings).finish()
    (tmp_path / "spec.yaml").write_text(spec.to_yaml(), encoding="utf-8")
    assert load(tmp_path / "spec.yaml") == spec
    assert spec.to_mapping()["algorithm"] == {"name": "fedavg+ft", "weighting": "equal"}
    assert spec.algorithm.channel.privacy == spec.privacy == Privacy("central", 2.0, 1.1)
    assert replace(spec, rounds=3).algorithm == spec.algorithm


def test_a_spec_never_drops_the_protection_of_its_algorithm():
    spec = Draft({"algorithm": "cfl", "privacy": {"kind": "local"}}).finish()
    with pytest.raises(UserError, match="private already"):
        replace(spec, privacy=Privacy())
    assert replace(spec, algorithm=CFL()).algorithm == spec.algorithm


def test_privacy_from_python_reaches_the_run_and_its_record(tmp_path):
    import fedpareto

    asked = {"kind": "local", "noise": 2.0}
    result = fedpareto.run("convex", FedPref(), clients=4, rounds=2, privacy=asked, out=tmp_path / "run")
    assert result.epsilon == max(row["epsilon"] for row in result.history)
    assert [row["epsilon"] > 0 for row in result.history] == [False, True, True]
    assert fedpareto.run("convex", "fedpref", clients=4, rounds=1).epsilon is None
