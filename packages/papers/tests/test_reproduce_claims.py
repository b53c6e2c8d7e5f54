from __future__ import annotations

import pytest

from fedpareto_papers.thesis.fairness import published
from fedpareto_papers.thesis.fairness import reproduction as fairness
from reproduced import NOTHING, cell, cells, staircase


def judged(name, **tables):
    """The claim of this name, on tables such as thesis_5_2."""
    named = {f"thesis-{key.removeprefix('thesis_').replace('_', '.')}": found for key, found in tables.items()}
    (found,) = [claim for claim in fairness.verdicts(named) if claim.name == name]
    return found


def fronts_of_sizes(table, size):
    found = []
    for problem, row in published.TABLES[table].cells.items():
        for algorithm in row:
            points = staircase(size(problem, algorithm)) if size(problem, algorithm) else NOTHING
            found.append(cell(table, problem, algorithm, points))
    return found


# -- the published numbers -----------------------------------------------------------------------------------------


def test_the_claims_about_hypervolumes_hold_on_the_published_numbers():
    found = {claim.name: claim for claim in fairness.holds_as_published()}
    for name in ("federation-pays", "fedprox-behind-personalised", "fedprox-behind-local"):
        assert found[name].verdict == "holds"
    assert "17 of 20" in found["federation-pays"].detail
    assert "FedProx 0.703 against CFL 0.767" in found["fedprox-behind-personalised"].detail


def test_the_thesis_prints_too_little_to_count_points():
    same, different = fairness.holds_as_published()[-2:]
    assert (same.verdict, different.verdict) == ("cannot be judged", "cannot be judged")
    assert "6 of 25 fronts with DDP are a single point, and 1 of 25 with DEO" in same.detail
    assert "A.15 repeats A.13" in different.detail


def test_ours_and_published_are_judged_on_the_same_claims():
    ours = [(claim.name, claim.statement, claim.where) for claim in fairness.verdicts({})]
    assert ours == [(claim.name, claim.statement, claim.where) for claim in fairness.holds_as_published()]


def test_without_tables_nothing_can_be_judged_and_each_claim_says_what_it_needs():
    for claim in fairness.verdicts({}):
        assert claim.verdict == "cannot be judged"
        assert "needs cells" in claim.detail


# -- federation pays -----------------------------------------------------------------------------------------------


def test_a_table_equal_to_the_published_one_gets_the_published_verdicts():
    tables = {name: cells(name) for name in ("thesis-5.2", "thesis-5.4")}
    for ours, theirs in zip(fairness.verdicts(tables)[:3], fairness.holds_as_published()[:3], strict=True):
        assert ours == theirs


def test_a_row_that_no_communication_wins_is_named_with_its_numbers():
    found = judged("federation-pays", thesis_5_2=cells("thesis-5.2", adult_race_deo={"local": 0.81}))
    assert found.verdict == "holds in part"
    assert found.detail.startswith("4 of 5 rows")
    assert "not in adult-race-deo (FedProx 0.735 against no comm. 0.810)" in found.detail


def test_it_does_not_hold_if_no_communication_wins_every_row():
    rows = {problem.replace("-", "_"): {"local": 0.95} for problem in published.TABLES["thesis-5.2"].cells}
    assert judged("federation-pays", thesis_5_2=cells("thesis-5.2", **rows)).verdict == "does not hold"


def test_a_row_without_the_baseline_cannot_be_judged():
    found = judged("federation-pays", thesis_5_2=cells("thesis-5.2", adult_race_deo={"local": None}))
    assert found.verdict == "holds in part"
    assert "4 of 4 rows" in found.detail
    assert "cannot be judged in adult-race-deo (no value for no comm.)" in found.detail


def test_a_missing_algorithm_matters_only_where_it_might_have_won():
    found = judged("federation-pays", thesis_5_2=cells("thesis-5.2", adult_race_deo={"cfl": None}))
    assert found.verdict == "holds"
    found = judged("federation-pays", thesis_5_2=cells("thesis-5.2", adult_race_deo={"cfl": None, "local": 0.8}))
    assert "cannot be judged in adult-race-deo (no value for CFL)" in found.detail


def test_some_rows_of_a_table_are_judged_alone():
    some = [found for found in cells("thesis-5.2") if found.problem == "adult-gender-deo"]
    found = judged("federation-pays", thesis_5_2=some)
    assert found.verdict == "holds in part"
    assert found.detail.startswith("1 of 1 rows")


# -- FedProx under heterogeneous preferences -----------------------------------------------------------------------


def test_fedprox_ahead_of_one_personalised_algorithm_breaks_the_claim_in_part():
    table = cells("thesis-5.4", adult_gender_deo={"fedprox": 0.77})
    found = judged("fedprox-behind-personalised", thesis_5_4=table)
    assert found.verdict == "holds in part"
    assert "not in adult-gender-deo (FedProx 0.770 against CFL 0.767)" in found.detail


def test_fedprox_ahead_everywhere_breaks_it():
    best = {"fedprox": 0.9}
    table = cells("thesis-5.4", adult_gender_deo=best, adult_race_deo=best)
    assert judged("fedprox-behind-personalised", thesis_5_4=table).verdict == "does not hold"
    assert judged("fedprox-behind-local", thesis_5_4=table).verdict == "does not hold"


def test_without_fedprox_there_is_nothing_to_judge():
    none = {"fedprox": None}
    found = judged("fedprox-behind-local", thesis_5_4=cells("thesis-5.4", adult_gender_deo=none, adult_race_deo=none))
    assert found.verdict == "cannot be judged"
    assert "no value for FedProx" in found.detail


# -- numbers of points ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deo", "ddp", "verdict"), [(4, 2, "holds"), (2, 4, "does not hold"), (3, 3, "does not hold")])
def test_points_on_fronts_are_counted_over_pairs_of_cells(deo, ddp, verdict):
    found = judged(
        "ddp-has-fewer-points-heterogeneous",
        thesis_5_4=fronts_of_sizes("thesis-5.4", lambda problem, algorithm: deo),
        thesis_5_5=fronts_of_sizes("thesis-5.5", lambda problem, algorithm: ddp),
    )
    assert found.verdict == verdict
    assert f"{ddp}.0 points a front with DDP against {deo}.0 with DEO" in found.detail
    assert f"fewer in {25 if ddp < deo else 0} of 25 pairs" in found.detail


def test_a_lower_mean_from_few_pairs_holds_in_part():
    found = judged(
        "ddp-has-fewer-points-homogeneous",
        thesis_5_2=fronts_of_sizes("thesis-5.2", lambda problem, algorithm: 20 if algorithm == "cfl" else 2),
        thesis_5_3=fronts_of_sizes("thesis-5.3", lambda problem, algorithm: 2),
    )
    assert found.verdict == "holds in part"
    assert "fewer in 5 of 25 pairs of cells, more in 0" in found.detail


def test_pairs_without_a_front_are_left_out_and_counted():
    found = judged(
        "ddp-has-fewer-points-homogeneous",
        thesis_5_2=fronts_of_sizes("thesis-5.2", lambda problem, algorithm: 4),
        thesis_5_3=fronts_of_sizes("thesis-5.3", lambda problem, algorithm: 0 if algorithm == "cfl" else 3),
    )
    assert found.verdict == "holds"
    assert "fewer in 20 of 20 pairs" in found.detail
    assert "5 pairs lack a front" in found.detail


# -- differences ---------------------------------------------------------------------------------------------------


def test_differences_are_means_of_rows_and_columns_and_the_largest_cells():
    table = cells("thesis-5.4", law_school_race_deo={"fedprox": 0.531, "cfl": 0.741, "local": None})
    found = fairness.differences(table)
    rows = {row.name: row for row in found.rows}
    assert rows["law-school-race-deo"].mean == pytest.approx(-0.6 / 4)
    assert (rows["law-school-race-deo"].cells, rows["law-school-race-deo"].without_value) == (5, 1)
    assert [row.name for row in found.rows if row.is_far] == ["law-school-race-deo"]
    assert [column.name for column in found.columns if column.is_far] == ["fedprox"]
    assert [cell.algorithm for cell in found.largest[:2]] == ["fedprox", "cfl"]
    assert len(found.largest) == 5
    text = " ".join(found.sentences())
    assert "law-school-race-deo -0.150 (1 without value)" in text
    assert "More than 0.05 off on average: law-school-race-deo (-0.150), FedProx (-0.080)." in text
    assert "law-school-race-deo FedProx (-0.400)" in text


def test_a_column_without_values_has_no_mean():
    rows = {problem.replace("-", "_"): {"cfl": None} for problem in published.TABLES["thesis-5.2"].cells}
    found = fairness.differences(cells("thesis-5.2", **rows))
    assert [column.name for column in found.columns if column.mean is None] == ["cfl"]
    text = " ".join(found.sentences())
    assert "CFL none" in text
    assert "no problem and no algorithm" in text


def test_no_cells_have_no_differences():
    found = fairness.differences([])
    assert (found.rows, found.columns, found.largest) == ([], [], [])
    assert found.sentences()
