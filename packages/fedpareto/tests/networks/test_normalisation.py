"""What clients share of normalisation layers: all of it, their weights, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import fedpareto
from any_network import AnyNetwork
from fedpareto.algorithms._shared.few_models import distinct_start
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.fedfew import FedFew
from fedpareto.algorithms.clustered.ifca import IFCA
from fedpareto.algorithms.common_descent.fedcmoo import FedCMOO
from fedpareto.algorithms.common_descent.fsmgda import FSMGDA
from fedpareto.algorithms.fronts.praffl import PraFFL
from fedpareto.algorithms.personal.fedrep import FedRep
from fedpareto.algorithms.wrappers.fine_tuning import FineTuned
from fedpareto.algorithms.wrappers.normalisation import OWN, normalised, private_entries
from fedpareto.config.errors import UserError
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.registry import make_algorithm, protected
from fedpareto.moo.compression import restore
from fedpareto.spec.draft import Draft
from fedpareto.testing import conformance
from fedpareto.testing.conformance import largest_difference, trial

SMALL = AnyNetwork(module="small")
LAYOUT = SMALL.layout
STATISTICS = private_entries(LAYOUT, "private-statistics")
WHOLE = private_entries(LAYOUT, "private")
WAYS = {"private-statistics": STATISTICS, "private": WHOLE}


def stacked(models):
    return torch.stack([models[client] for client in sorted(models)])


def own_of(size=LAYOUT.size):
    """Which of the first entries of a model are private."""
    return torch.isin(torch.arange(size), WHOLE)


def kept(done):
    """The private entries of every client at the end, `[n, p]` or `[n, K, p]`."""
    return torch.stack([done.engine.private[0, 0, client][OWN] for client in sorted(done.models)])


def test_statistics_are_a_part_of_a_normalisation_layer():
    assert len(STATISTICS) == 8
    assert len(WHOLE) == 16
    assert set(STATISTICS.tolist()) < set(WHOLE.tolist())


@pytest.mark.parametrize("way", WAYS)
def test_private_entries_stay_with_their_clients_and_all_others_are_averaged(way):
    done = trial(normalised(FedAvg(), way), SMALL)
    models, initial = stacked(done.models), SMALL.initial(3).double()
    is_own = torch.zeros(LAYOUT.size, dtype=torch.bool)
    is_own[WAYS[way]] = True
    assert torch.equal(done.states[-1].model[is_own], initial[is_own]), "the server's never change"
    assert (models[:, is_own] != models[:1, is_own])[1:].any(1).all(), "each client has its own"
    assert torch.equal(models[:, ~is_own], models[:1, ~is_own].expand(len(models), -1))
    assert not torch.equal(models[0, ~is_own], initial[~is_own])


def test_of_one_client_all_ways_are_the_same():
    """Nothing is averaged."""
    federation = fedpareto.Federation.create(SMALL, 1, 3, "dirichlet")
    averaged, *others = (
        trial(normalised(FedAvg(), way), SMALL, federation=federation).models for way in ("averaged", *WAYS)
    )
    assert all(largest_difference(averaged, other) <= 1e-12 for other in others)


FEW, CLUSTERS, BODY = FedFew(models=2), IFCA(models=2), PraFFL(head_layers=1, body_epochs=1, head_epochs=1, sampled=2)


@pytest.mark.takes_long
@pytest.mark.parametrize(
    "algorithm",
    [*map(make_algorithm, ("fedprox", "ditto", "fsmgda", "fedcmoo")), FedRep(head_epochs=1), FEW, CLUSTERS, BODY],
    ids=lambda algorithm: algorithm.name,
)
def test_an_algorithm_keeps_the_contract(algorithm):
    private = normalised(algorithm, "private")
    conformance.replies_are_accepted(private, SMALL)
    conformance.stack_equals_loop(private, SMALL)
    conformance.reads_what_it_declares(private, SMALL)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [(FEW, "models"), (CLUSTERS, "model"), (BODY, "body")],
    ids=["several models", "one of several", "first layers"],
)
def test_of_every_model_that_a_client_trains_private_entries_stay_and_the_others_are_sent(algorithm, name):
    """The first round begins alike, so a client keeps what it would have sent."""
    plain, done = (trial(normalised(algorithm, way), SMALL, rounds=1) for way in ("averaged", "private"))
    averaged, replies = (one.outcomes[0].replies[name] for one in (plain, done))
    is_own = own_of(replies.shape[-1])
    assert torch.equal(replies[..., ~is_own], averaged[..., ~is_own])
    assert (replies[..., is_own] == SMALL.initial(3).double()[WHOLE]).all(), "what the client was sent"
    assert torch.equal(kept(done), averaged[..., is_own])
    assert (kept(done) != SMALL.initial(3).double()[WHOLE]).flatten(1).any(1).all()


@pytest.mark.parametrize("algorithm", [FEW, CLUSTERS, BODY, FSMGDA(), FedCMOO()], ids=lambda algorithm: algorithm.name)
def test_clients_end_with_the_private_entries_that_they_kept_from_round_to_round(algorithm):
    early, done = (trial(normalised(algorithm, "private"), SMALL, rounds=rounds) for rounds in (1, 3))
    models, own = stacked(done.models), kept(done)
    choices = own if own.dim() == 3 else own[:, None]
    assert (models[:, None, WHOLE] == choices).all(2).any(1).all(), "of one of its models, or the only ones"
    assert (kept(early) != own).flatten(1).any(1).all(), "they went on"
    assert (own[1:] != own[:1]).flatten(1).any(1).all(), "each client has its own"


@pytest.mark.parametrize(
    "algorithm",
    [FedFew(models=1), IFCA(models=1), BODY, FedCMOO(weight_steps=1, weight_lr=1e-15)],
    ids=lambda algorithm: algorithm.name,
)
def test_of_one_client_all_ways_are_the_same_for_several_models_and_for_parts_too(algorithm):
    federation = fedpareto.Federation.create(SMALL, 1, 3, "dirichlet")
    averaged, *others = (
        trial(normalised(algorithm, way), SMALL, federation=federation).models for way in ("averaged", *WAYS)
    )
    assert all(largest_difference(averaged, other) <= 1e-9 for other in others)


def test_of_updates_for_single_objectives_a_client_keeps_the_mean_and_sends_0():
    plain, done = (trial(normalised(FSMGDA(), way), SMALL, rounds=1) for way in ("averaged", "private"))
    averaged, replies = (one.outcomes[0].replies["updates"] for one in (plain, done))
    assert torch.equal(replies[..., ~own_of()], averaged[..., ~own_of()])
    assert not replies[..., WHOLE].any()
    assert torch.allclose(kept(done), SMALL.initial(3).double()[WHOLE] + averaged[..., WHOLE].mean(1), atol=1e-12)
    assert averaged[..., WHOLE].any()


def test_a_model_for_any_preference_has_its_clients_own_layers():
    done = trial(normalised(BODY, "private"), SMALL, rounds=1)
    parts = done.engine.model_parts(0, done.engine.algorithm.solutions(done.states[-1]))
    assert torch.equal(torch.stack([parts[client]["body"][WHOLE] for client in sorted(parts)]), kept(done))


def test_compressed_gradients_hold_nothing_of_private_entries():
    """With the largest rank nothing is lost, so what was sent can be restored."""
    plain, done = (trial(normalised(FedCMOO(rank=1000), way), SMALL, rounds=1) for way in ("averaged", "private"))
    sent = [one.outcomes[0].replies["left"] @ one.outcomes[0].replies["right"] for one in (plain, done)]
    averaged, replies = (restore(matrices, LAYOUT.size, 2) for matrices in sent)
    trained = private_entries(LAYOUT, "private")[averaged[..., WHOLE].abs().amax((0, 1)) > 1e-6]
    assert len(trained), "the layers have gradients"
    assert replies[..., WHOLE].abs().max() < 1e-12
    assert torch.allclose(replies[..., ~own_of()], averaged[..., ~own_of()], atol=1e-12)


@pytest.mark.parametrize("name", ["fedfew+ft", "ifca+ft", "fsmgda+ft", "fedcmoo+ft"])
def test_fine_tuned_models_have_their_clients_own_layers(name):
    done = trial(normalised(make_algorithm(name), "private"), SMALL)
    last = done.outcomes[-1].replies.tensors
    (tuned,) = (last[name] for name in ("model", "models") if name in last)
    assert (tuned[..., WHOLE] == SMALL.initial(3).double()[WHOLE]).all(), "even then they do not leave"
    own = kept(done) if kept(done).dim() == 3 else kept(done)[:, None]
    assert (stacked(done.models)[:, None, WHOLE] == own).all(2).any(1).all()


def test_fine_tuning_ends_with_the_model_that_a_client_trained():
    """Its shared part is tuned, its private one goes on from what it kept."""
    plain, tuned = (normalised(make_algorithm(name), "private") for name in ("fedavg", "fedavg+ft"))
    assert isinstance(tuned, FineTuned)
    before, after = (stacked(trial(one, SMALL).models) for one in (plain, tuned))
    is_own = torch.zeros(LAYOUT.size, dtype=torch.bool)
    is_own[WHOLE] = True
    assert torch.equal(before[:, is_own], after[:, is_own]), "the last training is the same"
    assert (after[:, ~is_own] != after[:1, ~is_own])[1:].any(1).all()


def test_private_entries_take_no_part_in_clipping_and_carry_no_noise():
    """With a clip that forbids all movement, the shared part stays and the private one learns all the same."""
    privacy = Privacy(kind="local", clip=1e-9, noise=0.0)
    wrapped = protected(normalised(FedAvg(weighting="equal"), "private"), privacy)
    assert (wrapped.channel.normalisation, wrapped.channel.privacy) == ("private", privacy)
    done, free = (trial(one, SMALL) for one in (wrapped, normalised(FedAvg(weighting="equal"), "private")))
    initial = SMALL.initial(3).double()
    is_own = torch.zeros(LAYOUT.size, dtype=torch.bool)
    is_own[WHOLE] = True
    assert (stacked(done.models)[:, ~is_own] - initial[~is_own]).abs().max() < 1e-8
    assert (stacked(done.models)[:, is_own] - initial[is_own]).abs().max() > 1e-2
    noisy = protected(normalised(FedAvg(weighting="equal"), "private"), Privacy(kind="local", clip=10.0, noise=1.0))
    once = [stacked(trial(one, SMALL, rounds=1).models) for one in (noisy, free.engine.algorithm)]
    assert torch.equal(once[0][:, is_own], once[1][:, is_own])
    assert (once[0][:, ~is_own] - once[1][:, ~is_own]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lft-ensemble", "its clients train on their own, and are sent no model to train further"),
        ("mofld", "its solutions are the server's own"),
    ],
)
def test_where_clients_have_no_model_of_their_own_or_train_without_others_it_is_refused(name, why):
    with pytest.raises(UserError, match=f"normalisation=private does not fit {name}: .*{why}"):
        normalised(make_algorithm(name), "private")


@dataclass(frozen=True)
class Sketching(FedAvg):
    """Sends a summary of its model as well."""

    def reply_shapes(self, setting):
        return {"train": {**super().reply_shapes(setting)["train"], "sketch": (setting.layout.size // 2,)}}


def test_what_may_hold_private_entries_in_some_other_form_is_refused():
    with pytest.raises(UserError, match="its clients send sketch, of which nobody knows what comes from such layers"):
        normalised(Sketching(), "private")


def test_clients_that_send_nothing_keep_everything_anyway():
    assert normalised(make_algorithm("local"), "private") == make_algorithm("local")


@pytest.mark.parametrize("name", ["fedavg", "fsmgda", "fedavg-n", "fedcmoo", "praffl", "ifca"])
def test_what_layers_do_not_change_is_the_algorithms_own(name):
    own = make_algorithm(name)
    around = normalised(own, "private")
    for what in ("needs", "sums", "averages", "ends_as_planned", "reply_limits"):
        assert getattr(around, what) == getattr(own, what)
    sent, reply = {"model": torch.zeros(2, 3)}, {"model": torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.1]])}
    assert torch.equal(around.summand(sent, reply)["model"], own.summand(sent, reply)["model"])
    assert normalised(around, "private") is around
    assert not hasattr(around, "no_step_of_it")
    with pytest.raises(UserError, match=f"{name} has normalisation=private already"):
        normalised(around, "private-statistics")


def test_a_network_without_such_layers_is_refused_by_a_spec_and_from_python():
    with pytest.raises(UserError, match="the network of convex has no normalisation layers"):
        Draft({"problem": "convex", "algorithm": "fedavg", "normalisation": "private"}).finish()
    with pytest.raises(UserError, match="has no running statistics"):
        fedpareto.run(
            AnyNetwork(module="transformer"), "fedavg", clients=2, rounds=1, normalisation="private-statistics"
        )
    with pytest.raises(UserError, match="unknown value of normalisation 'shared'"):
        Draft({"problem": "convex", "normalisation": "shared"}).finish()


def test_a_run_says_how_it_shares_them():
    result = fedpareto.run(SMALL, "fedavg", clients=3, rounds=2, normalisation="private", engine={"threads": 1})
    assert result.spec.to_mapping()["normalisation"] == "private"
    assert result.spec.algorithm.channel.normalisation == "private"
    other = fedpareto.run(SMALL, "fedavg", clients=3, rounds=2, engine={"threads": 1})
    assert not (result.solutions[0].values["train"] == other.solutions[0].values["train"]).all()


@pytest.mark.parametrize(
    "algorithm",
    [
        *map(make_algorithm, ("apfl", "fedmgda-plus", "fedcmoo", "fedfew")),
        FedRep(head_epochs=1),
        PraFFL(head_layers=1, body_epochs=1, head_epochs=1, sampled=2),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_other_methods_train_statistics_too(algorithm):
    """Two models side by side, updates instead of models, several models, a part of a model, heads by the dozen."""
    done = trial(algorithm, SMALL)
    start, models = SMALL.initial(3).double(), stacked(done.models)
    assert models.isfinite().all()
    assert (models[:, STATISTICS] != start[STATISTICS]).any()
    assert largest_difference(done.models, trial(algorithm, SMALL, chunk=2).models) <= 1e-9


def test_constants_of_a_network_are_no_draw_that_could_be_shuffled():
    problem = AnyNetwork(module="transformer")
    setting = fedpareto.Federation.create(problem, 2, 0, "dirichlet").setting(problem, 1)
    models, places = distinct_start(setting, 3), problem.layout.slices
    assert torch.equal(models[1, places["positions"]], setting.initial[places["positions"]])
    assert not torch.equal(models[1, places["words.weight"]], setting.initial[places["words.weight"]])


def test_a_hypernetwork_makes_no_statistics():
    layout = AnyNetwork(module="normalisation").layout
    with pytest.raises(UserError, match=r"keep statistics of rows \(5.running_mean\); take fewer head_layers"):
        PraFFL(head_layers=3).anatomy(layout, 2)
    assert PraFFL(head_layers=1).anatomy(layout, 2).head.names == ("8.weight", "8.bias")
