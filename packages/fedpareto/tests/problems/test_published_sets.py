"""The published data sets: their counts as published, prepared as documented, and a benchmark that learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from six_goals import SIX

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.contract.registry import problems
from fedpareto.moo.dominance import is_nondominated
from fedpareto.problems import data
from fedpareto.problems.fairness import tables
from fedpareto.problems.fairness.benchmarks import Adult, Bank, Compas, CreditDefault, LawSchool, Published
from fedpareto.problems.fairness.datasets import CATALOGUE
from fedpareto.tensors.rows import Rows
from fedpareto.testing.conformance import PROBLEM_CHECKS, check_problem

SETS = {name: cls for name, cls in problems().items() if issubclass(cls, Published)}


def shares(series):
    return series.value_counts().to_dict()


# -- counts --------------------------------------------------------------------------------------------------------


def test_every_set_has_a_problem_and_every_problem_a_set():
    assert set(SETS) == set(CATALOGUE)
    assert {cls.dataset.name for cls in SETS.values()} == set(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_rows_label_and_groups_are_as_published(name, published):
    dataset = published(name)
    assert dataset.census() == dataset.published


def test_adult_file_by_file(published):
    training, test = published("adult").contents()
    frame = published("adult").table().frame
    first, second = frame[:32_561], frame[32_561:]
    assert training.count(b"\n") == 32_562  # An empty line at the end.
    assert test.count(b"\n") == 16_283  # And one in front.
    assert (len(first), len(second)) == (32_561, 16_281)
    assert (first["income"] == ">50K").mean() == pytest.approx(0.2408, abs=5e-5)
    assert (second["income"] == ">50K").mean() == pytest.approx(0.2362, abs=5e-5)
    assert shares(first["sex"]) == {"Male": 21_790, "Female": 10_771}
    assert shares(first["race"]) == {
        "White": 27_816,
        "Black": 3_124,
        "Asian-Pac-Islander": 1_039,
        "Amer-Indian-Eskimo": 311,
        "Other": 271,
    }
    assert [int(part.isna().any(axis=1).sum()) for part in (first, second)] == [2_399, 1_221]
    assert [int((part["education"] == "Doctorate").sum()) for part in (first, second)] == [413, 181]


def test_law_school_in_both_versions(published):
    frame = published("law-school").table().frame
    assert shares(frame["race1"]) == {"white": 18_716, "black": 1_343, "hisp": 1_027, "asian": 897, "other": 408}
    assert frame["pass_bar"].mean() == pytest.approx(0.9478, abs=5e-5)
    whole = tables.parse_csv(published("law-school").contents()[0])
    assert whole.shape == (22_407, 38)
    assert (whole["bar1"] == "P").mean() == pytest.approx(0.8854, abs=5e-5)
    assert not {"dnn_bar_pass_prediction", "ID", "bar1", "bar2", "bar", "grad"} & set(frame.columns)
    clean = published("law-school-20798").table().frame
    assert clean.shape == (20_798, 12)
    assert clean["pass_bar"].mean() == pytest.approx(0.8897, abs=1e-4)
    assert not clean.isna().any(axis=None)


def test_credit_default(published):
    frame = published("credit-default").table().frame
    assert frame.shape == (30_000, 24)
    assert frame["default payment"].mean() == pytest.approx(0.2212, abs=5e-5)
    assert shares(frame["SEX"]) == {"2": 18_112, "1": 11_888}
    assert not frame.isna().any(axis=None)


def test_compas_without_names(published):
    whole = tables.parse_csv(published("compas").contents()[0])
    assert whole.shape == (7_214, 53)
    assert whole["two_year_recid"].mean() == pytest.approx(0.4507, abs=1e-4)
    assert shares(whole["race"])["African-American"] == 3_696
    assert shares(whole["sex"]) == {"Male": 5_819, "Female": 1_395}
    frame = published("compas").table().frame
    assert len(frame) == 6_172
    assert frame["two_year_recid"].mean() == pytest.approx(0.4551, abs=5e-5)
    assert not {"name", "first", "last", "dob", "id"} & set(frame.columns)


def test_bank(published):
    frame = published("bank").table().frame
    assert frame.shape == (45_211, 17)
    assert (frame["y"] == "yes").mean() == pytest.approx(0.1170, abs=5e-5)
    assert shares(frame["marital"]) == {"married": 27_214, "single": 12_790, "divorced": 5_207}
    assert "duration" not in Bank()._encoder.names
    assert "duration" in Bank(drop=())._encoder.names


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_number_of_inputs_is_known_without_the_data(name, published, monkeypatch, tmp_path):
    published(name)
    problem = SETS[name]()
    width = problem._encoder.width
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    assert problem.layout.shapes[0] == SETS[name]().layout.shapes[0] == (width, 64)


# -- the problems --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", PROBLEM_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CATALOGUE)
def test_problem_keeps_the_contract(name, check, published):
    published(name)
    check(SETS[name](), 3)


@pytest.mark.parametrize(
    "parameters",
    [
        {"goals": SIX},
        {"normalise": True},
        {"relaxation": "covariance", "goals": ("accuracy", "equalised-odds"), "sensitive": ("gender", "race")},
        {"partition": "dirichlet-group", "alpha": 0.3, "unmeasured": "worst"},
        {"split": (0.7, 0.0, 0.3), "partition": "stratified", "hidden": ()},
    ],
    ids=["six goals", "normalised", "covariance", "Dirichlet", "no validation"],
)
def test_variants_keep_the_contract(parameters, published):
    published("compas")
    check_problem(Compas(**parameters))


def test_objectives_need_no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    problem = LawSchool(sensitive=("gender,race",), goals=("accuracy,equal-opportunity",))
    assert [goal.name for goal in problem.objectives] == [
        "accuracy",
        "equal-opportunity:gender",
        "equal-opportunity:race",
    ]
    assert problem.maximise == [True] * 3
    assert problem.reference == [0.0] * 3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sensitive": ("sex",)}, "unknown attribute of adult in sensitive 'sex'; known: gender, race"),
        ({"goals": ("accuracy", "equal-opportunity:rase")}, "attribute of adult in goals 'rase'; did you mean 'race'"),
        ({"partition": "stratfied"}, "unknown partition 'stratfied'; did you mean 'stratified'"),
        ({"alpha": 0.0}, "alpha is 0; it is above 0"),
        ({"split": (0.8, 0.2)}, "split is 0.8, 0.2; it is the shares of training, validation"),
        ({"split": (0.8, 0.2, 0.0)}, "split is 0.8, 0.2, 0"),
        ({"c": -1.0}, "c is -1; it is at least 0"),
        ({"hidden": (64, 0)}, "hidden has 0; each is at least 1"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_named_at_once(parameters, message):
    with pytest.raises(UserError, match=message):
        Adult(**parameters)


def whole(splits, name):
    return torch.cat([part.columns[name] for part in splits.values()])


@pytest.mark.parametrize(
    "partition",
    ["random", "stratified", "dirichlet-label", "dirichlet-group", "column:occupation", "shares:0.5,0.3,0.2"],
)
def test_every_row_of_adult_is_assigned_once_whatever_the_partition(partition, published):
    table = published("adult").table()
    problem = Adult(partition=partition, unmeasured="worst", test="own")
    clients = problem.default_clients()
    assert clients == {"column:occupation": 15, "shares:0.5,0.3,0.2": 3}.get(partition, 10)
    splits = problem.data(clients, 0)
    assert list(splits) == ["train", "validation", "test"]
    assert sum(part.counts.sum() for part in splits.values()) == 48_842
    assert whole(splits, "label").sum() == table.label.sum()
    order = [index for index, name in enumerate(problem._encoder.names) if name.startswith("education=")]
    dealt = whole(splits, "features")[:, order].sum(dim=0).numpy()
    assert sorted(dealt) == sorted(table.frame["education"].value_counts())
    train = splits["train"].counts.sum() / 48_842
    assert train == pytest.approx(0.6, abs=0.002)


def test_stratified_clients_have_all_pairs_of_label_and_groups_in_proportion(published):
    published("adult")
    splits = Adult(partition="stratified", sensitive=("gender", "race"), test="own").data(10, 0)

    def pairs(client):
        own = [part.of_client(client) for part in splits.values()]
        names = ("label", "sensitive:gender", "sensitive:race")
        codes = sum(2**i * torch.cat([part[name] for part in own]).int() for i, name in enumerate(names))
        return torch.bincount(codes, minlength=8)

    counts = torch.stack([pairs(client) for client in range(10)])
    assert (counts.amax(0) - counts.amin(0)).max() <= 1


def test_silos_hold_one_occupation_each(published):
    published("adult")
    problem = Adult(partition="column:occupation", unmeasured="worst")
    jobs = [i for i, name in enumerate(problem._encoder.names) if name.startswith("occupation")]
    train = problem.data(15, 0)["train"]
    for client in range(15):
        features = train.of_client(client)["features"][:, jobs]
        assert (features.amax(0) > 0).sum() == 1
    with pytest.raises(UserError, match=r"client 1\d has no row of sex=.* with label 1 in"):
        Adult(partition="column:occupation", goals=("accuracy", "equal-opportunity")).data(15, 0)


def test_numbers_are_standardised_on_all_clients_training_rows(published):
    published("credit-default")
    splits = CreditDefault().data(5, 0)
    numbers = splits["train"].columns["features"][:, :20].double()
    assert numbers.mean(0).abs().max() < 1e-5
    assert (numbers.std(0, correction=0) - 1).abs().max() < 1e-5
    assert splits["test"].columns["features"][:, :20].double().mean(0).abs().max() > 1e-3


def test_losses_are_divided_by_what_they_are_for_the_initial_model_on_each_client(published):
    published("compas")
    from fedpareto.tensors.rows import Batch

    problem = Compas(normalise=True, goals=("accuracy", "equal-opportunity"))
    splits = problem.data(4, 7)
    parameters = problem.layout.unflatten(problem.initial(7)[None])
    for client in range(4):
        columns = {name: column[None] for name, column in splits["train"].of_client(client).items()}
        losses = problem.losses(parameters, Batch(columns, torch.ones_like(columns["label"])))
        assert losses[0].tolist() == pytest.approx([1, 1], rel=1e-5)


def test_a_common_test_set_is_everybodys_and_takes_the_room_of_one(published):
    published("law-school")
    own, common = LawSchool(test="own").data(5, 0), LawSchool().data(5, 0)
    assert own["test"].counts.sum() == len(common["test"].columns["label"]) == common["test"].counts[0]
    assert len(set(common["test"].counts)) == 1
    for position in (0, 4):
        assert torch.equal(common["test"].of_client(position)["features"], own["test"].columns["features"])
    for part in ("train", "validation"):
        assert torch.equal(common[part].columns["features"], own[part].columns["features"])
    together = Rows.concat([common["test"], LawSchool().data(3, 1)["test"]])
    first, second = (len(LawSchool().data(n, s)["test"].columns["label"]) for n, s in ((5, 0), (3, 1)))
    assert together.starts.tolist() == [0] * 5 + [first] * 3
    assert together.counts.tolist() == [first] * 5 + [second] * 3


def test_one_model_has_one_value_on_a_common_test_set(published):
    published("law-school")
    result = fedpareto.run(LawSchool(hidden=(8,)), "fedavg", clients=3, rounds=1)
    assert np.ptp(result.solutions[0].points, axis=0).max() < 1e-6
    other = fedpareto.run(LawSchool(test="own", hidden=(8,)), "fedavg", clients=3, rounds=1)
    assert np.ptp(other.solutions[0].points, axis=0).max() > 1e-4


def test_the_other_label_can_be_the_positive_one(published):
    published("law-school")
    assert LawSchool(positive="0")._table.label.mean() == pytest.approx(1 - 21_238 / 22_407)
    with pytest.raises(UserError, match="has the values 0"):
        _ = LawSchool(positive="2")._table


def test_another_seed_partitions_the_same_table_without_reading_it_again(published, monkeypatch):
    published("adult")
    problem = Adult(sensitive=("gender", "race"))
    problem.data(50, 0)

    def refuse(*arguments):
        raise AssertionError("the files are read once")

    monkeypatch.setattr(data, "read", refuse)
    assert problem.data(50, 1)["train"].counts.sum() > 0


# -- runs ----------------------------------------------------------------------------------------------------------


def test_three_rounds_on_adult_learn_more_than_the_majority(published):
    published("adult")
    result = fedpareto.run("adult", "fedavg", clients=5, rounds=3, preferences="1,0")
    accuracy, fairness = result.solutions[0].points.mean(axis=0)
    assert accuracy > 0.83 > 1 - 0.2393
    assert 0.7 < fairness < 0.95


def test_the_preference_for_fairness_buys_fairness_with_accuracy(published):
    published("adult")
    means = [
        fedpareto.run("adult", "fedavg", clients=4, rounds=5, preferences=preference).solutions[0].points.mean(axis=0)
        for preference in ("1,0", "0.4,0.6")
    ]
    assert means[1][1] > means[0][1] + 0.03
    assert is_nondominated(np.stack(means), maximise=True).all()


def test_a_damaged_data_set_is_one_clear_line(published, monkeypatch, tmp_path):
    (tmp_path / "compas").mkdir()
    content = published("compas").contents()[0]
    (tmp_path / "compas" / "compas-scores-two-years.csv").write_bytes(content[:-100])
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    with pytest.raises(
        UserError, match=r"compas-scores-two-years\.csv is damaged: 2,546,389 bytes instead of 2,546,489"
    ):
        Compas().data(3, 0)
