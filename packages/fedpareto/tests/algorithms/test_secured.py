"""A server that learns only a sum: what it is, who may be missing, and what can be read from all that it sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from secure_rounds import CLIENTS, MASKED, engine_of, played

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.averaging.fedavg_n import FedAvgN
from fedpareto.algorithms.wrappers.private import protected
from fedpareto.algorithms.wrappers.secured import LEAST, Secured, secured
from fedpareto.config.errors import QuorumLost, UserError
from fedpareto.contract import registry
from fedpareto.contract.messages import Tasks
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.registry import make_algorithm
from fedpareto.contract.secure_sum import SecureSum
from fedpareto.problems.convex import Convex
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.spec.draft import Draft
from fedpareto.testing import conformance
from fedpareto.testing.conformance import ALGORITHM_CHECKS, largest_difference, trial
from little_work import LITTLE_WORK

RANDOM = {conformance.preferences_stay_private}
"""Keys are drawn anew each time, so replies without training differ, too."""
ALL_NEEDED = {conformance.missing_replies_are_borne}
"""A single reply is no sum that hides anybody."""
FINE, CONVEX = Secured(FedAvg(), SecureSum("masked", precision=40)), Convex()
"""The same for all checks, which share runs; as fine as double precision."""


def sum_by_hand(clients, ring, weighting="size"):
    """Σ n_i θ_i / Σ n_i of these clients, from their whole numbers."""
    plain = engine_of(FedAvg(weighting))
    (tasks,) = plain.algorithm.ask(plain.algorithm.begin(plain.settings[0]))
    replies = plain.run([tasks]).replies.only(np.array(clients))
    values = replies["model"].double()
    weights = replies["size"].double() if weighting == "size" else torch.ones(len(values)).double()
    whole = (values * weights[:, None] / ring.unit).round().long().sum(0)
    return ((whole.double() * ring.unit) / weights.sum()).to(replies["model"])


# -- the sum -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "left_out"),
    [
        ({}, []),
        ({"advertise": [0, 4, 9]}, [0, 4, 9]),
        ({"share": [0, 4, 9]}, [0, 4, 9]),
        ({"train": [0, 4, 9]}, [0, 4, 9]),
        ({"unmask": [0, 4, 9]}, []),
        ({"share": [1], "train": [5], "unmask": [8]}, [1, 5]),
    ],
    ids=["nobody", "keys", "shares", "masked", "unmasking", "one at each"],
)
def test_the_sum_of_those_who_sent_something_is_exact_whoever_drops_out_in_the_middle(gone, left_out):
    there = [client for client in range(CLIENTS) if client not in left_out]
    found = played(gone=gone).states[-1].inner.model
    assert torch.equal(found, sum_by_hand(there, MASKED.ring))


def test_with_few_neighbours_the_sum_is_the_same():
    # Who is a neighbour depends on random keys: of six and itself, four are left whoever the three are.
    few = Secured(FedAvg("equal"), replace(MASKED, neighbours=6, threshold=0.5))
    found = played(few, {"share": [2], "train": [7], "unmask": [3]}).states[-1].inner.model
    there = [client for client in range(CLIENTS) if client not in (2, 7)]
    assert torch.equal(found, sum_by_hand(there, MASKED.ring, "equal"))


def test_a_ring_of_32_bits_costs_what_float32_does():
    short = Secured(FedAvg("equal"), replace(MASKED, bits=32, precision=16))
    done = played(short)
    assert done.seen["train"].size == 4 * len(done.states[-1].inner.model)
    wanted = sum_by_hand(list(range(CLIENTS)), short.secure_sum.ring, "equal")
    assert torch.equal(done.states[-1].inner.model, wanted)


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ({"advertise": range(8)}, "round 1: only 2 clients advertised keys; a secure sum needs 7"),
        ({"train": [0, 1, 2, 3, 4]}, "round 1: only 5 of 10 clients sent what they trained; a secure sum needs 7"),
        (
            {"unmask": [0, 1, 2, 3, 4, 5]},
            "round 1: the mask of client 0 cannot be removed: 4 clients gave a share of it, 7 that fit are needed",
        ),
    ],
)
def test_too_few_survivors_end_the_run_with_a_line_as_a_lost_quorum_does(gone, words):
    with pytest.raises(QuorumLost, match=words) as lost:
        played(gone=gone)
    assert "\n" not in str(lost.value)


def test_normalised_updates_that_only_a_sum_is_known_of_have_equal_weights():
    found = played(Secured(FedAvgN(), MASKED), {"train": [4]}).states[-1].inner
    assert found.weights.numpy() == pytest.approx(np.where(np.arange(CLIENTS) == 4, 0, 1 / 9))


def test_false_shares_are_found_out_and_those_of_others_used():
    algorithm = Secured(FedAvg(), MASKED)
    done = played(algorithm, {"train": [4], "unmask": [0]})
    state, revealed = done.states[-2], done.seen["unmask"]
    false = revealed["revealed"].clone()
    false[0] = 7  # All that one client says, of itself and of others.
    told = algorithm.tell(state, replace(revealed, tensors={"revealed": false}))
    assert torch.equal(told.inner.model, done.states[-1].inner.model)


def test_a_client_that_was_begun_anew_within_a_round_is_one_that_dropped_out():
    """As after the loss of a worker of Ray, whose clients do the steps of the round once more, with other keys."""
    algorithm = Secured(FedAvg(), MASKED)
    engine = engine_of(algorithm)
    state = algorithm.begin(engine.settings[0])
    for step in ("advertise", "share", "train"):
        (tasks,) = algorithm.ask(state)
        replies = engine.run([tasks]).replies
        if step == "share":
            engine.run([Tasks(np.array([3]), round=1, step="advertise")])
        assert len(replies) == (CLIENTS if step != "train" else CLIENTS - 1)
        state = algorithm.tell(state, replies)
    done = algorithm.tell(state, engine.run(algorithm.ask(state)).replies)
    there = [client for client in range(CLIENTS) if client != 3]
    # Those of a stack that fails are trained one by one, which changes their last bits.
    torch.testing.assert_close(done.inner.model, sum_by_hand(there, MASKED.ring), atol=1e-6, rtol=0)


def test_what_no_honest_clients_can_have_is_not_taken_for_their_mean():
    """Nobody can look at single updates, so the run ends in a line, before a model is lost."""
    for algorithm, shift, words in (
        (Secured(FedAvg("equal"), MASKED), 2**60, "from where they began; at most 1e.15 and"),
        (
            Secured(FedAvg("equal"), replace(MASKED, precision=4)),
            2**62,
            "holds values up to 2.88e.16",
        ),
        (secured(protected(FedAvg("equal"), Privacy("central", clip=0.5)), MASKED), 2**28, "at most 1e.15 and 0.50"),
    ):
        done = played(algorithm)
        second = played(algorithm, engine=engine_of(algorithm), state=done.states[-1])
        false = replace(second.states[-2], total=second.states[-2].total + shift)
        with pytest.raises(QuorumLost, match=f"round 2: of 10 clients together the mean of 'model' .*{words}") as lost:
            algorithm.tell(false, second.seen["unmask"])
        assert "\n" not in str(lost.value)


def test_a_checkpoint_and_private_state_of_the_version_before_go_on():
    algorithm = Secured(FedAvg("equal"), MASKED)
    engine = engine_of(algorithm)
    state = played(algorithm, engine=engine).states[-1]
    kept = Checkpoint()
    kept.put_state(state, "state")
    del kept.values["state"]["fields"]["moved"]
    shelf = engine.private.shelf(0, 0)
    shelf.tensors = {f"secure.own.{name}": one for name, one in shelf.tensors.items() if name != LEAST}
    again = played(algorithm, engine=engine, state=kept.get_state(state, "state"))
    wanted = played(algorithm, engine=engine_of(algorithm), state=state).states[-1].inner.model
    assert torch.equal(again.states[-1].inner.model, wanted)


# -- what it is for ------------------------------------------------------------------------------------------------

ALLOWED = [
    *(
        "apfl",
        "ditto",
        "fedadam",
        "fedavg",
        "fedavg-n",
        "fedavgm",
        "fedbuff",
        "feddyn",
        "fedper",
        "fedprox",
        "fedrep",
        "fedyogi",
        "moon",
    ),
    *("fsmgda", "lft-fedavg", "per-fedavg", "pfedme", "praffl", "scaffold"),
]


@pytest.mark.parametrize("name", [*registry.algorithms(), "fedavg+ft", "ditto+ft"])
def test_an_algorithm_has_a_secure_sum_or_a_reason_in_one_line(name):
    algorithm = make_algorithm(name)
    if name in ALLOWED:
        assert secured(algorithm, MASKED).name == name
        return
    with pytest.raises(UserError, match=f"does not fit {name.replace('+', '.')}: (its|in its) [a-z]") as refused:
        secured(algorithm, MASKED)
    assert "\n" not in str(refused.value)


def test_a_safe_choice_needs_no_sum():
    safe = make_algorithm("fedavg+safe")
    plain, hidden = (trial(one, CONVEX, rounds=2) for one in (safe, secured(safe, MASKED)))
    assert largest_difference(plain.models, hidden.models) <= 1e-6
    assert hidden.outcomes[-1].replies.tensors == {}


@pytest.mark.parametrize("name", ALLOWED)
def test_it_is_the_algorithm_itself_to_the_precision_of_the_ring(name):
    algorithm = make_algorithm(name, LITTLE_WORK.get(name, {}))
    problem = conformance.small_problem(algorithm)
    plain, hidden = (trial(one, problem, rounds=2) for one in (algorithm, Secured(algorithm, MASKED)))
    assert largest_difference(plain.models, hidden.models) <= 1e-6
    assert not [failure for outcome in hidden.outcomes for failure in outcome.failures]


@pytest.mark.parametrize("check", [one for one in ALGORITHM_CHECKS if one not in RANDOM | ALL_NEEDED])
def test_it_keeps_the_contract(check):
    check(FINE, CONVEX)


def test_central_and_local_noise_are_in_the_sum_as_without_it():
    for kind in ("central", "local"):
        private = protected(FedAvg("equal"), Privacy(kind, clip=0.5, noise=0.1))
        plain, hidden = (trial(one, Convex(), rounds=2) for one in (private, secured(private, MASKED)))
        assert largest_difference(plain.models, hidden.models) <= 1e-6


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"defence": "median"}, "defence.rule=median looks at each client's update, and a sum hides them"),
        ({"measure_contribution": True}, "nobody sees what a single client sent"),
        ({"codec": "float32-delta"}, "masked ones look random"),
        ({"server_codec": "int8-delta"}, "masked ones look random"),
        ({"attack": "sign-flip"}, "attack.kind=sign-flip forges replies, which are masked"),
        ({"clients": 2}, "a round has 2 of the clients, and only a sum of at least 3 hides each of them"),
        ({"participation": 0.2}, "a round has 2 of the clients"),
        ({"policy": "buffered"}, "masks cancel among the clients of one round"),
        ({"algorithm": "fedpref"}, "its server works with each client's own reply"),
        ({"algorithm": "fedmgda-plus"}, "its server compares the clients' updates with each other"),
        ({"algorithm": "q-fedavg"}, "its server measures each client's update"),
        ({"secure_sum": {"threshold": 0.7}}, "secure_sum.threshold is set, but no secure_sum.kind"),
    ],
)
def test_what_cannot_be_hidden_in_a_sum_is_refused_with_the_reason(more, words):
    draft = {"algorithm": "fedavg", "problem": "convex", "clients": 10, "secure_sum": "masked"}
    with pytest.raises(UserError, match=words):
        Draft({**draft, **more}).finish()


def test_fedbuff_waits_for_all_where_masks_must_cancel():
    draft = {"algorithm": "fedbuff", "problem": "convex", "secure_sum": "masked"}
    assert Draft(draft).finish().policy.waits
