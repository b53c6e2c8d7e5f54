"""A user's own table: each thing that real files do either works as documented or is one clear line."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
import torch

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.testing.conformance import check_problem

ROWS = 600


def people(seed=0):
    """Age and hours decide the income, with a little help for one of three groups."""
    stream = np.random.default_rng(seed)
    group = stream.choice(["green", "red", "blue"], ROWS)
    age, hours = stream.integers(18, 80, ROWS), stream.normal(40, 8, ROWS).round(1)
    score = (age - 45) / 15 + (hours - 40) / 8 + (group == "green") + stream.normal(0, 0.5, ROWS)
    return pandas.DataFrame(
        {
            "age": age,
            "hours": hours,
            "group": group,
            "job": stream.choice(["cook", "clerk", "driver"], ROWS),
            "state": stream.choice(["north", "south", "east"], ROWS),
            "planet": "earth",
            "income": np.where(score > 0.3, "high", "low"),
        }
    )


@pytest.fixture
def table(tmp_path):
    """`table(frame, label="income", …)` is the problem on that frame, written to a file."""

    def write(frame, name="people.csv", **parameters):
        path = tmp_path / name
        if name.endswith(".parquet"):
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False)
        return OwnTable(
            **{"file": str(path), "label": "income", "sensitive": ("group",), "positive": "high"} | parameters
        )

    return write


def rows(problem, split="train", clients=2):
    return {name: column.numpy() for name, column in problem.data(clients, 0)[split].columns.items()}


def refusal(problem, clients=2):
    with pytest.raises(UserError) as refused:
        problem.data(clients, 0)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# -- what works ----------------------------------------------------------------------------------------------------


def test_a_users_table_keeps_the_contract_and_learns(table):
    problem = table(people())
    check_problem(problem)
    result = fedpareto.run(problem, "fedavg", clients=3, rounds=10, preferences="1,0")
    assert result.solutions[0].points[:, 0].mean() > 0.8


def test_the_text_that_is_positive_may_be_named_or_says_so_itself(table):
    named, by_itself = rows(table(people())), rows(table(people(), positive=""))
    assert np.array_equal(named["label"], by_itself["label"])
    assert np.array_equal(named["label"], 1 - rows(table(people(), positive="low"))["label"])
    frame = people().assign(income=lambda frame: (frame["income"] == "high").astype(int))
    for label in (frame["income"], frame["income"].astype(bool), frame["income"].astype(float)):
        for positive in ("", "1"):
            assert np.array_equal(rows(table(frame.assign(income=label), positive=positive))["label"], named["label"])


def test_one_of_several_labels_may_be_named(table):
    frame = people()
    frame.loc[::7, "income"] = "middle"
    assert rows(table(frame))["label"].mean() == pytest.approx((frame["income"] == "high").mean(), abs=0.01)
    assert "has 3 values (high, low, middle); say which one is label 1" in refusal(table(frame, positive=""))


def test_three_groups_are_three_groups_or_by_a_rule_two(table):
    assert set(rows(table(people()))["sensitive:group"]) == {0, 1, 2}
    problem = table(people(), privileged=("green",))
    assert problem._groups("group").names == ("group≠green", "group=green")
    assert rows(problem)["sensitive:group"].mean() == pytest.approx(1 / 3, abs=0.06)
    assert table(people(), privileged=("group=green",))._groups("group").names[1] == "group=green"


def test_a_number_is_sensitive_by_a_rule(table):
    problem = table(people(), sensitive=("group", "age"), privileged=("age>=40",))
    assert [goal.name for goal in problem.objectives] == [
        "accuracy",
        "demographic-parity:group",
        "demographic-parity:age",
    ]
    assert problem._groups("age").names == ("age<40", "age>=40")
    assert "'age' of people.csv has 62 values; say who is privileged, such as privileged=age>=49" in refusal(
        table(people(), sensitive=("age",))
    )


def test_missing_values_are_filled_and_say_so(table):
    frame = people().astype({"age": float})
    frame.loc[::5, "age"] = np.nan
    frame.loc[1::5, "job"] = None
    frame.loc[2::5, "group"] = None
    problem = table(frame)
    names = problem._encoder.names
    assert "age is missing" in names
    assert "job is missing" in names
    assert "hours is missing" not in names
    features = rows(problem)["features"]
    filled = features[features[:, names.index("age is missing")] == 1]
    assert len(filled) == pytest.approx(0.2 * len(features), abs=30)
    assert (filled[:, names.index("age")] == 0).all()
    assert (rows(problem)["sensitive:group"] == -1).mean() == pytest.approx(0.2, abs=0.05)
    check_problem(problem)


def test_rows_without_a_label_are_left_out_and_infinite_numbers_are_missing(table):
    frame = people()
    frame.loc[:99, "income"] = None
    frame.loc[150, "hours"] = np.inf
    problem = table(frame)
    parts = {name: part.counts for name, part in problem.data(2, 0).items()}
    assert sum(parts[name].sum() for name in ("train", "validation", "own-test")) == ROWS - 100
    assert parts["test"].tolist() == [parts["own-test"].sum()] * 2
    assert "hours is missing" in problem._encoder.names
    assert np.isfinite(rows(problem)["features"]).all()


def test_a_category_that_no_training_row_has_is_nothing_at_all(table):
    frame = people()
    problem = table(frame)
    order = problem.data(2, 0)["test"]
    # Find a row of the test part by its age and hours, and give it a job that nobody else has.
    names = problem._encoder.names
    one = order.columns["features"][0]
    means, deviations = (frame[["age", "hours"]].agg(how).to_numpy() for how in ("mean", "std"))
    guess = one[[names.index("age"), names.index("hours")]].numpy() * deviations + means
    place = int(np.abs(frame[["age", "hours"]].to_numpy() - guess).sum(axis=1).argmin())
    changed = frame.copy()
    changed.loc[place, "job"] = "astronaut"
    after = table(changed, "changed.csv")
    features = after.data(2, 0)["test"].columns["features"]
    jobs = [i for i, name in enumerate(after._encoder.names) if name.startswith("job=")]
    assert "job=astronaut" in after._encoder.names
    assert features[:, after._encoder.names.index("job=astronaut")].max() == 0
    assert (features[:, jobs].sum(dim=1) == 0).sum() == 1


def test_a_constant_column_is_left_out_and_so_is_what_the_user_drops(table):
    assert not any(name.startswith("planet") for name in table(people())._encoder.names)
    problem = table(people(), drop=("job,state",), partition="column:state")
    assert [name for name in problem._encoder.names if "=" in name] == ["group=blue", "group=green", "group=red"]
    assert problem.default_clients() == 3
    assert problem.data(3, 0)["train"].counts.sum() > 0


def test_parquet_and_other_separators_and_compression_read_alike(table, tmp_path):
    expected = rows(table(people()))
    frame = people()
    frame.to_csv(tmp_path / "semicolon.csv", sep=";", index=False)
    frame.to_csv(tmp_path / "tabs.csv.gz", sep="\t", index=False)
    problems = [
        table(frame, "people.parquet"),
        *(
            OwnTable(file=str(tmp_path / name), label="income", sensitive=("group",), positive="high")
            for name in ("semicolon.csv", "tabs.csv.gz")
        ),
    ]
    for problem in problems:
        for name, column in rows(problem).items():
            assert np.array_equal(column, expected[name]), (problem.file, name)


def test_a_file_that_changes_is_read_again(table):
    assert rows(table(people()))["label"].mean() < 0.9
    frame = people().assign(income=["high"] * (ROWS - 60) + ["low"] * 60)
    assert rows(table(frame))["label"].mean() == pytest.approx(0.9, abs=0.01)


def test_the_encoding_is_estimated_on_training_rows_only(table):
    """An outlier in the test part, a million years old, changes nothing but itself."""
    frame = people()
    problem = table(frame)
    before = problem.data(2, 0)
    for place in np.flatnonzero(frame["age"] == frame["age"].max()):  # Some of the oldest are in the test part.
        older = frame.assign(age=frame["age"].where(frame.index != place, 1_000_000))
        after = table(older, f"{place}.csv").data(2, 0)
        changed = after["test"].columns["features"][:, 0] > 1000
        if changed.any():
            break
    assert changed.sum() == 1
    for split, part in before.items():
        for name, column in part.columns.items():
            same = torch.ones(len(column), dtype=torch.bool) if "test" not in split else ~changed
            assert torch.equal(column[same], after[split].columns[name][same]), (split, name)


def test_a_large_table_is_kept_in_little_room_and_learns_the_same(table, monkeypatch):
    frame = people().assign(job=lambda frame: frame["job"].where(frame.index != 7, "astronaut"))
    whole = fedpareto.run(table(frame), "fedavg", clients=2, rounds=2)
    monkeypatch.setattr("fedpareto.problems.fairness.problem.MOST_CELLS", 0)
    monkeypatch.setattr("fedpareto.problems.fairness.problem.ROWS_AT_ONCE", 100)
    problem = table(frame)
    rows = problem.data(2, 0)["train"]
    assert rows.columns["features"].shape[1] == 2
    assert rows.columns["codes"].shape[1] == 3
    assert not rows.columns["codes"].is_floating_point()
    compact = fedpareto.run(problem, "fedavg", clients=2, rounds=2)
    for client, model in whole.models[0].items():
        assert torch.allclose(model, compact.models[0][client], atol=1e-6)
    assert np.allclose(whole.solutions[0].points, compact.solutions[0].points)


def test_memory_grows_with_the_rows_and_not_with_the_texts(tmp_path):
    """A column of texts takes a byte or two for each row, however long the texts are."""
    frame = pandas.DataFrame({"word": np.random.default_rng(0).choice(["a" * 500, "b" * 500], 2000), "x": range(2000)})
    frame.to_csv(tmp_path / "long.csv", index=False)
    read = OwnTable(file=str(tmp_path / "long.csv")).read().frame
    assert read["word"].cat.codes.nbytes == 2000
    assert read["x"].to_numpy().nbytes == 4000


# -- what does not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"label": "incom"}, "unknown column of people.csv 'incom'; did you mean 'income'?"),
        ({"sensitive": ("sex",)}, "unknown column of people.csv 'sex'"),
        ({"sensitive": ("income",)}, "'income' is the label; it cannot be sensitive too"),
        (
            {"sensitive": ()},
            "the problem 'table' needs sensitive, the sensitive columns, such as sensitive=gender,race",
        ),
        ({"label": ""}, "the problem 'table' needs label, the column to predict, such as label=income"),
        ({"file": ""}, "the problem 'table' needs file, the table to read, such as file=people.csv"),
        ({"file": "nowhere.csv"}, "nowhere.csv cannot be read: No such file or directory"),
        ({"file": "."}, ". cannot be read: it is a folder without a .parquet file"),
        ({"positive": "rich"}, "positive is 'rich', but the label 'income' of people.csv has the values high, low"),
        ({"positive": "True"}, "has the values high, low; YAML reads yes and no as true and false: put them in quotes"),
        ({"label": "planet", "positive": ""}, "the label 'planet' of people.csv has one value only (earth)"),
        ({"sensitive": ("planet",)}, "the sensitive 'planet' puts all rows of people.csv into one group"),
        ({"privileged": ("purple",)}, "the sensitive 'group=purple' puts all rows of people.csv into one group"),
        ({"privileged": ("job=cook",)}, "unknown sensitive column in privileged 'job'; known: group."),
        ({"privileged": ("group>=3",)}, "compares numbers, but 'group' of people.csv has none"),
        ({"privileged": ("age>=old",), "sensitive": ("age",)}, "compares with 'old', which is no number"),
        (
            {"privileged": ("cook",), "sensitive": ("group", "job")},
            "privileged is 'cook'; say of which column, such as group=cook",
        ),
        ({"drop": ("jobs",)}, "unknown column of people.csv 'jobs'; did you mean 'job'?"),
        ({"drop": ("age,hours,group,job,state",)}, "people.csv has no column to learn from beside the label"),
        ({"partition": "column:region"}, "unknown column of people.csv 'region'"),
        ({"partition": "shares:0.5,0.3,0.2"}, "partition is 'shares:0.5,0.3,0.2', for 3 clients, not 2"),
    ],
)
def test_a_mistake_is_one_clear_line(table, parameters, message):
    assert message in refusal(table(people(), **parameters))


def test_more_clients_than_silos_or_rows_are_refused(table):
    assert "which has 3 silos for 4 clients" in refusal(table(people(), partition="column:state"), clients=4)
    assert "300 clients need at least 900 rows; there are 600" in refusal(table(people()), clients=300)


def test_a_column_of_names_is_refused_with_what_to_do(table):
    frame = people().assign(name=[f"person {number}" for number in range(ROWS)])
    assert "the column 'name' of people.csv has 600 different texts; leave it out: --set drop=name" in refusal(
        table(frame)
    )
    assert len(rows(table(frame, drop=("name",)))["label"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "is empty: it has no rows"),
        ("header.csv", b"group,income\n", "is empty: it has no rows"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "cannot be read as CSV: "),
        ("binary.csv", b"\x00\x01\x02\xff", "cannot be read as CSV: it is not text"),
        ("short.csv.gz", b"\x1f\x8b\x08", "cannot be read as CSV: "),
        ("people.parquet", b"PAR1 not", "cannot be read as Parquet: "),
    ],
)
def test_a_file_that_is_no_table_is_one_clear_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in refusal(OwnTable(file=str(tmp_path / name), label="income", sensitive=("group",)))


def test_a_client_without_a_group_is_refused_or_counts_as_unfair(table):
    frame = people().assign(state=lambda frame: np.where(frame["group"] == "red", "south", frame["state"]))
    frame.loc[frame["state"] == "east", "group"] = "blue"
    problem = table(frame, partition="column:state")
    assert "has no row of green in 'train', so demographic-parity:group cannot be measured there" in refusal(problem, 3)
    allowed = table(frame, partition="column:state", unmeasured="worst")
    check_problem(allowed)
    result = fedpareto.run(allowed, "fedavg", clients=3, rounds=1, preferences="1,0")
    own = result.solutions[0].values["own-test"]
    assert (own[:, 1] == 0).sum() == 1
    assert (own[:, 0] > 0).all()
    assert (result.solutions[0].points > 0).all()


def test_a_goal_among_the_positive_names_the_label_that_is_lacking(table):
    frame = people()
    frame.loc[frame["group"] == "red", "income"] = "low"
    problem = table(frame, privileged=("red",), goals=("accuracy", "equal-opportunity"))
    assert "has no row of group=red with label 1 in 'train', so equal-opportunity:group" in refusal(problem)


def test_without_a_file_the_problem_can_still_be_listed():
    problem = OwnTable()
    assert [objective.name for objective in problem.objectives] == ["accuracy", "demographic-parity"]
    assert problem.layout.size > 0


def test_a_text_in_parquet_that_is_not_utf_8_is_a_damaged_file(tmp_path):
    import pyarrow
    from pyarrow import parquet

    broken = pyarrow.array([b"f", b"\xff"] * 20, pyarrow.binary()).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"gender": broken, "hired": [0, 1] * 20}), tmp_path / "people.parquet")
    with pytest.raises(UserError, match=r"people\.parquet cannot be read as Parquet: .*Invalid UTF8"):
        OwnTable(file=str(tmp_path / "people.parquet"), label="hired", sensitive=("gender",)).data(2, 0)
