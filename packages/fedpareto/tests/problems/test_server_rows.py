"""Rows of the server's own: no client's, and what MOFL/D measures on if the server evaluates (section 3.1.2.1)."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
import torch

import fedpareto
from fedpareto.algorithms.fronts.mofld import MOFLD
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import setting_of
from fedpareto.problems.fairness.silo import Silo
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors.rows import Batch
from fedpareto.testing.conformance import trial

CLIENTS, ROWS = 4, 400


def table(**parameters):
    """Every row has a number of its own, which the classifier reads."""
    stream = np.random.default_rng(0)
    columns = {"number": np.arange(ROWS), "gender": stream.choice(["f", "m"], ROWS)}
    frame = pandas.DataFrame(columns | {"good": stream.choice(["yes", "no"], ROWS)})
    return fedpareto.table(frame, "good", "gender", hidden=(8,), test="own", **parameters)


def numbers(rows):
    return set(rows.columns["features"][:, 0].tolist())


@pytest.mark.parametrize("partition", ["random", "stratified", "dirichlet-label", "column:gender"])
def test_every_row_is_a_clients_or_the_servers_and_never_both(partition):
    problem = table(server_share=0.25, partition=partition, unmeasured="worst")
    clients = 2 if partition == "column:gender" else CLIENTS
    server = problem.held_by_server(clients, 3)
    clients_rows = [numbers(rows) for rows in problem.data(clients, 3).values()]
    assert server.counts.sum() == pytest.approx(0.25 * ROWS, abs=2)
    assert sum(map(len, clients_rows)) + len(numbers(server)) == ROWS
    assert len(set.union(*clients_rows, numbers(server))) == ROWS


def test_without_a_share_clients_have_all_rows_and_the_server_has_no_judge():
    assert sum(len(numbers(rows)) for rows in table().data(CLIENTS, 0).values()) == ROWS
    assert table().judge(CLIENTS, 0) is None
    assert Synthetic().judge(CLIENTS, 0) is None


@pytest.mark.parametrize("problem", [table(server_share=0.25), Synthetic(server_rows=300)], ids=["table", "synthetic"])
def test_the_server_measures_what_anyone_would_measure_on_its_rows(problem):
    models = torch.stack([problem.initial(seed) for seed in range(3)])
    rows = problem.held_by_server(CLIENTS, 0)
    columns = {name: column.unsqueeze(0) for name, column in rows.columns.items()}
    label, group = columns["label"][0].numpy(), problem.groups(Batch(columns, torch.ones(1, len(rows.columns))))[0]
    for model, found in zip(models, problem.judge(CLIENTS, 0)(models), strict=True):
        logits = problem.logits(problem.layout.unflatten(model[None]), Batch(columns, torch.ones(1, len(label))))[0]
        said = (logits > 0).numpy()
        rates = [said[group.numpy() == which].mean() for which in (0, 1)]
        by_hand = [(said == (label > 0)).mean(), 1 - abs(rates[0] - rates[1])]
        assert found.numpy() == pytest.approx(np.array([by_hand] * 3), abs=1e-6)


def test_mofld_asks_no_client_to_measure_and_its_front_is_the_one_on_the_servers_rows():
    problem = Synthetic(server_rows=300, hidden=(4,))
    done = trial(MOFLD(samples=3, training_rounds=1, evaluation="server"), problem, rounds=2)
    assert {outcome.replies.step for outcome in done.outcomes if len(outcome.replies)} == {"solve"}
    final = done.states[-1]
    judge = problem.judge(len(final.setting.clients), final.setting.seed)
    assert torch.allclose(final.values, judge(final.models).double())


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UserError, match="server_share is 1; it is at least 0 and below 1"):
        table(server_share=1.0)
    with pytest.raises(UserError, match="of 400 rows the server has none; take more"):
        table(server_share=0.001).judge(CLIENTS, 0)
    with pytest.raises(UserError, match="server_rows is -1; it is at least 0"):
        Synthetic(server_rows=-1)
    with pytest.raises(UserError, match="the rows of a silo stay with their party"):
        Silo(server_share=0.1)


def test_a_setting_brings_the_judge():
    problem = table(server_share=0.25)
    setting = setting_of(problem, range(CLIENTS), 0, 1)
    assert setting.judge is not None
    assert setting.judge(setting.initial.unsqueeze(0)).shape == (1, 3, 2)
