"""Chapter 4 of the thesis again: clusters, and what becomes of its claims."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedpareto.record import reading
from fedpareto.report.figures import similarity_matrices
from fedpareto_papers.catalogue import Options
from fedpareto_papers.study import Entry, Row
from fedpareto_papers.thesis.morl import clusters as morl_clusters
from fedpareto_papers.thesis.morl import published
from fedpareto_papers.thesis.morl import reproduction as morl
from fedpareto_papers.thesis.morl import runs as morl_runs
from test_reproduce_morl import quick

# -- clusters ------------------------------------------------------------------------------------------------------


def test_the_rand_index_is_that_of_scikit_learn():
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(0)
    for _ in range(200):
        one, other = (rng.integers(0, rng.integers(1, 6), 12).tolist() for _ in range(2))
        assert morl_clusters.rand_index(one, other) == pytest.approx(adjusted_rand_score(one, other))
    assert morl_clusters.rand_index([0, 0, 1, 1], [1, 1, 0, 0]) == 1


def test_clusters_are_labels_of_clients():
    assert morl_clusters.labels(((3, 0), (1, 2)), 4) == [0, 1, 1, 0]


@pytest.mark.takes_long
def test_groups_are_looked_for_and_drawn(tmp_path):
    outcome, _ = quick("thesis-clusters", tmp_path)
    balanced, unbalanced = outcome.record["clusters"]
    assert (balanced["environment"], balanced["clients"], unbalanced["clients"]) == ("DST", "balanced", "unbalanced")
    rounds = outcome.record["over_rounds"]["dst balanced"]
    assert rounds["rounds"] == [0, 1, 2, 3]
    assert np.shape(rounds["rand_index"]) == (2, 4)
    assert [row[0] for row in rounds["rand_index"]] == [0, 0]  # All in one cluster.
    names = {path.name for path in outcome.files}
    assert {"thesis-clusters-dst-balanced-similarity.png", "thesis-clusters-rand-index.pdf"} <= names
    assert all(path.stat().st_size > 1000 for path in outcome.files)
    run = reading.load(tmp_path / "thesis-4" / "dst" / "groups-1-2-3" / "fedpref")
    figure = similarity_matrices(run, 1, rounds=[2, 3], by_cluster=False)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["after round 2 of 3", "after round 3 of 3"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [str(client) for client in range(6)]


@pytest.mark.takes_long
def test_the_sizes_of_cfls_clusters_are_counted(tmp_path):
    outcome, _ = quick("thesis-cfl", tmp_path, clients=4)
    over = outcome.record["over_rounds"]["dst Dirichlet"]
    for seed in range(2):
        assert (over["clusters"][seed][0], over["largest cluster"][seed][0]) == (1, 4)
    assert set(over) == {"rounds", *morl_clusters.MEASURES}


def history(environment, kind, seeds, groups):
    """A training whose seeds have these clusters after each round."""

    class Made:
        started = tuple(range(len(seeds)))

        def clusters(self, seed):
            return dict(enumerate(seeds[seed]))

    return morl_clusters.History(environment, kind, Made(), groups)


def test_shown_rounds_are_the_thesis_or_at_the_same_share():
    whole = [[[[0]]] * 31]
    assert history("moll", "balanced", whole, [0]).shown == [5, 14, 26]
    assert history("mollc", "balanced", [[[[0]]] * 16], [0]).shown == [2, 8, 12]


def test_the_claims_about_clusters():
    one, cut, uneven = [[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1, 2, 3]]
    rare, common = morl_clusters.verdicts(
        "thesis-cfl", [history("dst", "Dirichlet", [[one, one]] * 3 + [[one, uneven]], [])]
    )
    assert (rare.verdict, common.verdict) == ("holds", "holds")
    assert "1 of 4 seeds" in rare.detail
    (rare, common) = morl_clusters.verdicts("thesis-cfl", [history("dst", "Dirichlet", [[one, cut]] * 3, [])])
    assert (rare.verdict, common.verdict) == ("does not hold", "does not hold")
    late = [[one] * 16 + [cut] * 3, [one] * 17 + [cut] * 2]
    (found,) = morl_clusters.verdicts("thesis-clusters", [history("moll", "balanced", late, [0, 0, 1, 1])])
    assert found.verdict == "holds in part"
    assert found.detail.startswith("1 of 2 seeds")
    assert morl_clusters.verdicts("thesis-clusters", [history("dst", "balanced", late, [0, 0, 1, 1])]) == []


# -- claims --------------------------------------------------------------------------------------------------------


def claim(values, name):
    (found,) = [one for one in morl.verdicts(values) if one.name == name]
    return found


def test_on_the_thesis_own_numbers_all_but_two_claims_hold():
    found = {one.name: one for one in morl.holds_as_published()}
    doubtful = {"fine-tuning-hurts-dirichlet", "averaging-worst-equidistant"}
    assert {name for name, one in found.items() if one.verdict != "holds"} == doubtful
    assert (
        "not in MO-HC, Dirichlet (FedAvg 2234.06 against FedAvg+FT 2901.84)"
        in found["fine-tuning-hurts-dirichlet"].detail
    )
    assert (
        "DST, FedAvg+FT (dirichlet -36.40, equidistant -36.01, gaussian -37.42)"
        in found["averaging-worst-equidistant"].detail.partition("not in")[2]
    )


def test_claims_are_judged_on_the_environments_that_were_run():
    values = {key: value for key, value in morl.published_values().items() if key[1] == "dst"}
    found = claim(values, "fedpref-best-dirichlet")
    assert found.verdict == "holds"
    assert found.detail.endswith("not run: MO-LL, DMC, MO-HC")
    assert claim(values, "clustering-best-dmc").verdict == "cannot be judged"
    values["reward", "dst", "dirichlet", "local"] = 5.0
    found = claim(values, "fedpref-best-dirichlet")
    assert found.verdict == "does not hold"
    assert "FedPref+FT 4.41 against No comm. 5.00" in found.detail
    del values["reward", "dst", "dirichlet", "cfl"]
    assert claim(values, "fedpref-best-dirichlet").verdict == "cannot be judged"


def test_lower_is_better_for_sparsity_and_igd():
    values = morl.published_values()
    assert claim(values, "fedpref-evener-gaussian").verdict == "holds"
    values["igd", "dst", "gaussian", "local"] = 0.1
    assert claim(values, "fedpref-evener-gaussian").verdict == "holds in part"


def test_a_draw_in_cardinality_counts_for_fedpref():
    values = morl.published_values()
    values["cardinality", "dst", "equidistant", "local"] = 8.0
    assert claim(values, "fedpref-most-solutions-equidistant").verdict == "holds"
    values["cardinality", "dst", "equidistant", "local"] = 8.1
    assert claim(values, "fedpref-most-solutions-equidistant").verdict == "holds in part"


def test_more_than_one_solution_of_fedavg_breaks_the_claim():
    values = morl.published_values()
    values["cardinality", "dst", "gaussian", "fedavg"] = 1.2
    found = claim(values, "averaging-finds-one")
    assert found.verdict == "holds in part"
    assert "not in Gaussian, FedAvg (1.2)" in found.detail


def test_a_parameter_pays_where_some_value_beats_the_plain_one():
    values = morl.published_values()
    for ratio in (0.2, 0.4, 0.6, 0.8):
        values["reward", "dst", "dirichlet", morl.varied("top_ratio", ratio)] = 2.0
    found = claim(values, "top-ratio-pays")
    assert found.verdict == "holds in part"
    assert "not in DST (2.00 at 0.2 against 2.52)" in found.detail


def test_claims_are_judged_on_all_records_of_one_size(tmp_path):
    def write(name, plan, value):
        row = {"environment": "dst", "preferences": "dirichlet", "metrics": {"reward": {"ours": value}}}
        rows = [row | {"algorithm": component} for component in published.COMPONENTS[:4]]
        rows += [row | {"algorithm": "fedpref", "metrics": {"reward": {"ours": value + 1}}}]
        rows += [row | {"algorithm": "fedpref+ft"}]
        (tmp_path / f"{name}.json").write_text(json.dumps({"plan": morl_runs.plan(plan), "rows": rows}))

    write("thesis-4.2", Options(seeds=3), 1.0)
    (tmp_path / "thesis-cfl.json").write_text(json.dumps({"plan": morl_runs.plan(Options(seeds=3)), "clusters": []}))
    assert [one.name for one in morl.judge(tmp_path, Options(seeds=3))] == ["both-components-best"]
    assert morl.judge(tmp_path, Options(seeds=2)) == []


def test_the_order_of_algorithms_is_compared():
    def made(algorithm, ours, theirs):
        key = {"environment": "dst", "preferences": "dirichlet", "algorithm": algorithm}
        return Row(key, {"reward": [ours]}, {"reward": Entry(theirs, 0.0)})

    same = [made("local", 1, 10), made("fedavg", 2, 20), made("cfl", 3, 30)]
    assert "DST dirichlet 1.00" in next(iter(morl.agreement(same, ["reward"])))
    turned = [made("local", 3, 10), made("fedavg", 2, 20), made("cfl", 1, 30)]
    assert "DST dirichlet -1.00" in next(iter(morl.agreement(turned, ["reward"])))
    assert list(morl.agreement(same[:2], ["reward"])) == []
