"""The paper on FedMGDA+ again: what becomes of its claims, and its bars."""

from __future__ import annotations

import pytest

from fedpareto.report.style import render
from fedpareto_papers.fedmgda import published
from fedpareto_papers.fedmgda import reproduction as fedmgda
from fedpareto_papers.figures import Bar
from fedpareto_papers.figures.drawing import bar_panels

# -- what is concluded ---------------------------------------------------------------------------------------------


def judged(name, values):
    return {claim.name: claim for claim in fedmgda.verdicts(name, values)}


def attacks(**changed):
    """Accuracies as the paper describes them; some of them other."""
    values = {("adult-bias", "afl", "pooled"): 0.84, ("adult-bias", "afl,bias=1", "pooled"): 0.76}
    values |= {("adult-bias", "q-fedavg", "pooled"): 0.84, ("adult-bias", "q-fedavg,bias=10000", "pooled"): 0.76}
    values |= {("adult-bias", one, "pooled"): 0.83 for one in ("fedmgda-plus", "fedmgda-plus,bias=10000")}
    values |= {("adult-bias", "local", "pooled"): 0.75}
    falls = dict.fromkeys(published.ALGORITHMS, 0.05) | dict.fromkeys(published.NORMALISED, -0.001)
    falls["q-fedavg"] = 0.2
    for algorithm, fall in falls.items():
        values["cifar10-scaling", algorithm, "average"] = 0.6
        values["cifar10-scaling", f"{algorithm},scaling=10", "average"] = 0.6 - fall
    return values | changed.get("values", {})


def test_the_claims_about_attacks_hold_on_what_the_paper_describes():
    claims = judged("fedmgda-fig-2", attacks())
    assert {claim.verdict for claim in claims.values()} == {"holds"}
    assert len(claims) == 7


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        ({("adult-bias", "afl,bias=1", "pooled"): 0.80}, "bias-leads-to-phd-only"),
        ({("adult-bias", "local", "pooled"): 0.85}, "bias-leads-to-phd-only"),
        ({("adult-bias", "fedmgda-plus,bias=10000", "pooled"): 0.829}, "bias-leaves-fedmgda-plus-alone"),
        ({("adult-bias", "afl", "pooled"): 0.82}, "rivals-slightly-better-in-peace"),
        ({("cifar10-scaling", "fedmgda,scaling=10", "average"): 0.595}, "scaling-hurts-who-does-not-normalise"),
        ({("cifar10-scaling", "fedprox,scaling=10", "average"): 0.3}, "scaling-hurts-q-fedavg-most"),
        ({("cifar10-scaling", "mgda-prox,scaling=10", "average"): 0.59}, "scaling-helps-fedmgda-plus"),
        ({("cifar10-scaling", "fedmgda-plus,scaling=10", "average"): 0.58}, "fedmgda-plus-loses-at-most-a-point"),
    ],
)
def test_a_claim_about_attacks_can_fail(change, claim):
    assert judged("fedmgda-fig-2", attacks(values=change))[claim].verdict in ("does not hold", "holds in part")


def interpolation(losses, accuracies):
    return {
        (case, f"fedmgda,epsilon={epsilon:g}", metric): value
        for case in ("cifar10-shards", "cifar10-iid")
        for metric, found in (("loss", losses), ("average", accuracies))
        for epsilon, value in zip(published.EPSILONS, found, strict=True)
    }


def test_the_claims_about_epsilon():
    good = judged("fedmgda-fig-1", interpolation((0.1, 0.2, 0.3, 0.4, 0.5), (0.6, 0.62, 0.5, 0.5, 0.5)))
    assert [claim.verdict for claim in good.values()] == ["holds"] * 3
    bad = judged("fedmgda-fig-1", interpolation((0.4, 0.3, 0.3, 0.3, 0.2), (0.6, 0.5, 0.5, 0.5, 0.7)))
    assert [claim.verdict for claim in bad.values()] == ["does not hold"] * 3


def test_the_claims_about_improved_users():
    values = {
        (case, algorithm, metric): 0.995 if algorithm == "fedmgda-plus" and case.endswith(("full", "convex")) else 0.8
        for case in published.FIGURES["fedmgda-fig-4"].variants
        for algorithm in published.ALGORITHMS
        for metric in ("improved", "improved at the end")
    }
    assert {claim.verdict for claim in judged("fedmgda-fig-4", values).values()} == {"holds"}
    values["convex", "fedmgda-plus", "improved at the end"] = 0.98
    values["cifar10-b10", "fedavg", "improved"] = 0.81
    found = judged("fedmgda-fig-4", values)
    assert found["full-batches-improve-all"].verdict == "holds in part"
    assert found["fedmgda-plus-improves-most"].verdict == "holds in part"
    assert "FedAvg 81.00 %" in found["fedmgda-plus-improves-most"].detail


def test_claims_about_what_was_not_run_are_silent_or_say_so():
    assert fedmgda.verdicts("fedmgda-fig-3", {}) == []
    only_adult = {key: value for key, value in attacks().items() if key[0] == "adult-bias"}
    found = judged("fedmgda-fig-2", only_adult)
    assert "scaling-hurts-q-fedavg-most" not in found
    assert "not run: CIFAR-10, scaling" in found["fedmgda-plus-loses-at-most-a-point"].detail


def test_fedmgda_plus_must_beat_fedavg_n_in_both():
    values = {("mnist-writers", name, "average"): 0.9 for name in published.ALGORITHMS}
    values |= {("mnist-writers", name, "deviation"): 0.1 for name in published.ALGORITHMS}
    values["mnist-writers", "fedmgda-plus", "average"] = 0.95
    found = judged("fedmgda-table-6", values)
    assert found["fedmgda-plus-best-average"].verdict == "holds"
    assert found["fedmgda-plus-beats-fedavg-n"].verdict == "holds in part"
    values["mnist-writers", "fedmgda-plus", "deviation"] = 0.2
    assert judged("fedmgda-table-6", values)["fedmgda-plus-as-even-as-q-fedavg"].verdict == "does not hold"


# -- bars ----------------------------------------------------------------------------------------------------------


def test_bars_show_every_number_and_the_level():
    bars = [Bar("a", 10, 1, "honest"), Bar("b $ c", 20, 2, "attacked"), Bar("d", 5)]
    figure = bar_panels({"one": bars, "two": bars[:1]}, "accuracy, %", {"one": 7.0})
    first, second = figure.axes
    assert [patch.get_width() for patch in first.patches] == [10, 20, 5]
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b $ c", "d"]
    assert [line.get_xdata()[0] for line in first.lines if line.get_linestyle() == "--"] == [7.0]
    assert not [line for line in second.lines if line.get_linestyle() == "--"]
    assert render(figure, "png").startswith(b"\x89PNG")
