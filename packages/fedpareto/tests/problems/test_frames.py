"""A pandas or polars DataFrame is a problem and gets predictions, as the same rows in a file do."""

from __future__ import annotations

import numpy as np
import pandas
import polars
import pytest
import torch

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.inputs.frames import features_of
from fedpareto.problems.fairness import sources
from fedpareto.problems.fairness.benchmarks import OwnTable


def people(rows=240, seed=0):
    stream = np.random.default_rng(seed)
    age, gender = stream.integers(18, 66, rows).astype(float), stream.choice(["f", "m"], rows)
    age[::17] = np.nan
    hired = np.where(np.nan_to_num(age, nan=40.0) + 9 * (gender == "m") + stream.normal(0, 8, rows) > 45, "yes", "no")
    job = stream.choice(["cook", "clerk", "driver"], rows)
    return pandas.DataFrame({"age": age, "job": job, "gender": gender, "member": age > 30, "hired": hired})


def rows_of(problem):
    return {(part, name): column for part, rows in problem.data(2, 0).items() for name, column in rows.columns.items()}


def test_a_frame_is_the_same_problem_as_its_file_in_pandas_and_in_polars(tmp_path):
    people().to_csv(tmp_path / "people.csv", index=False)
    expected = rows_of(OwnTable(file=str(tmp_path / "people.csv"), label="hired", sensitive=("gender",)))
    for frame in (people(), polars.DataFrame(people().to_dict("list"))):
        found = rows_of(fedpareto.table(frame, label="hired", sensitive="gender"))
        assert all(torch.equal(found[key], column) for key, column in expected.items())


def test_a_run_on_a_frame_goes_on_with_the_same_frame_and_no_other(tmp_path, monkeypatch):
    frame = people()

    def stop(progress):
        raise KeyboardInterrupt

    problem = fedpareto.table(frame, label="hired", sensitive=["gender"])
    with pytest.raises(KeyboardInterrupt):
        fedpareto.run(problem, "fedavg", clients=2, rounds=2, out=tmp_path / "run", on_round=stop)
    monkeypatch.setattr(sources, "_frames", {})
    sources._settled_frame.cache_clear()
    with pytest.raises(UserError, match=r"a DataFrame that this process does not have .*resume\(folder, frame=df\)"):
        fedpareto.resume(tmp_path / "run")
    with pytest.raises(UserError, match="does not have"):
        fedpareto.resume(tmp_path / "run", frame=people(seed=1))
    assert fedpareto.resume(tmp_path / "run", frame=frame) is not None


def test_predictions_of_a_frame_are_those_of_its_rows(tmp_path):
    frame = people()
    fedpareto.run(
        fedpareto.table(frame, label="hired", sensitive="gender"), "fedavg", clients=2, rounds=1, out=tmp_path / "run"
    )
    model = fedpareto.load(tmp_path / "run").conditioned(client=0)
    new = people(30, seed=2).assign(job=lambda frame: frame["job"].where(frame.index != 3, "pilot"))
    new.index = new.index + 100
    found = model.predict(new, [0.5, 0.5])
    features, unseen = features_of(model.card.inputs, new)
    encoded = model.card.inputs.encode(new.astype(object).where(new.notna(), None).to_dict("records"))
    assert np.array_equal(features, encoded.features)
    assert unseen == encoded.unseen == {"job": 1}
    assert list(found.index) == list(new.index)
    assert np.allclose(found["probability"], model(features, [0.5, 0.5]).numpy())
    assert ((found["probability"] > 0.5) == (found["decision"] == "yes")).all()
    in_polars = model.predict(polars.DataFrame(new.to_dict("list")), [0.5, 0.5])
    assert isinstance(in_polars, polars.DataFrame)
    assert np.allclose(in_polars["probability"].to_numpy(), found["probability"])


def test_what_is_no_frame_or_lacks_a_column_is_one_clear_line():
    with pytest.raises(UserError, match="a pandas or polars DataFrame, not list"):
        fedpareto.table([1, 2], label="hired", sensitive="gender")
    with pytest.raises(UserError, match="unknown column of the DataFrame 'hire'; did you mean 'hired'"):
        fedpareto.table(people(), label="hire", sensitive="gender").data(2, 0)
