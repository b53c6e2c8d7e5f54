"""What the page computes in the browser is what the library computes."""

from __future__ import annotations

import moocore
import numpy as np
import pytest

from browsing import patient
from fedpareto.moo.dominance import is_nondominated
from fedpareto.moo.indicators import hypervolume

CALL = """async ([name, ...arguments]) => {
  const maths = await import("/static/dominance.js");
  const found = maths[name](...arguments);
  return ArrayBuffer.isView(found) ? Array.from(found) : found;
}"""

GROWN = """async ([columns, totals, over, axis]) => {
  const [growing, curves, charts, scale] = await Promise.all(
    ["growing", "curves", "charts/lines", "charts/scale"].map((name) => import(`/static/${name}.js`)));
  const [lines, course] = [new growing.Lines(""), new curves.Course(over, "all")];
  const chart = new charts.Lines({ label: "" });
  Object.assign(chart, { x: scale.linear([0, 100], [0, 100]), y: scale.linear([-3, 3], [100, 0]) });
  let [found, era, drawn] = [null, null, {}];
  for (const total of totals) {
    const since = lines.total;
    lines.total = total;
    for (const [name, values] of Object.entries(columns)) {
      lines.columns.set(name, lines.grown(name, since, Float64Array.from(values.slice(since, total))));
    }
    found = course.follow(lines, axis).curve("y", true);
    drawn = chart.curve(found, course.era === era ? drawn.kept : undefined);
    era = course.era;
  }
  return [found.xs, found.ys, found.low ?? []].map((one) => Array.from(one)).concat(drawn.texts);
}"""
"""A curve at the ends of rounds, and its paths, once there are so many lines, and so many."""


@pytest.fixture(scope="module")
def page(page_server, browser, tmp_path_factory):
    server = page_server([tmp_path_factory.mktemp("nothing")])
    context = patient(browser)
    page = context.new_page()
    page.goto(server.url)
    yield page
    context.close()


@pytest.fixture(scope="module")
def computed(page):
    """Calls a function of dominance.js."""
    return lambda name, *arguments: page.evaluate(CALL, [name, *arguments])


def points_of(case, m):
    """Some with equal values, so that ties occur."""
    rng = np.random.default_rng(case)
    points = rng.normal(size=(rng.integers(1, 60), m))
    return np.round(points, 1) if case % 2 else points


@pytest.mark.parametrize("m", [2, 3, 5])
def test_the_same_points_are_not_dominated(computed, m):
    for case in range(8):
        points, maximise = points_of(case, m), [bool((case >> j) & 1) for j in range(m)]
        found = computed("nondominated", points.T.tolist(), maximise)
        expected = is_nondominated(points, maximise, keep_duplicates=True)
        assert np.array_equal(np.array(found, dtype=bool), expected)


def test_the_hypervolume_is_the_same(computed):
    for case in range(8):
        points, maximise = points_of(case, 2), [bool(case & 1), bool(case & 2)]
        reference = [-3.0 if up else 3.0 for up in maximise]
        front = computed("frontOf", *points.T.tolist(), maximise)
        assert computed("hypervolume2", front, reference, maximise) == pytest.approx(
            hypervolume(points, reference, maximise), abs=1e-12
        )


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75, 1.0])
def test_attainment_surfaces_are_those_of_moocore(computed, share):
    for case in range(6):
        rng = np.random.default_rng(case)
        seeds, maximise = 4, [bool(case & 1), bool(case & 2)]
        points = [rng.normal(size=(rng.integers(1, 12), 2)) for _ in range(seeds)]
        fronts = [computed("frontOf", *some.T.tolist(), maximise) for some in points]
        found = np.array(computed("attainment", fronts, share, maximise))
        signs = np.where(maximise, -1.0, 1.0)
        surface = moocore.eaf(
            np.concatenate(points) * signs,
            sets=np.repeat(np.arange(seeds), [len(p) for p in points]),
            percentiles=[100 * share],
        )
        expected = surface[:, :2] * signs
        assert np.allclose(found, expected[expected[:, 0].argsort()], atol=1e-12)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_curve_that_grows_is_the_one_that_is_drawn_at_once(page, seeds):
    rng = np.random.default_rng(seeds)
    rounds, late = 150, 20
    kept = [(r, seed) for r in range(rounds) for seed in range(seeds) if seed == 0 or r >= late]
    when, who = (np.array(one) for one in zip(*kept, strict=True))
    when = when - late * (who > 0)  # The second seed begins when the first is in its twentieth round.
    y, cost = np.where(rng.uniform(size=len(who)) < 0.05, np.nan, rng.normal(size=len(who))), rng.uniform(size=len(who))
    columns = {"seed": who.tolist(), "round": when.tolist(), "y": y.tolist(), "cost": cost.tolist()}
    pieces = [1, 2, late, late + 1, 70, *range(100, 110), len(who)]
    arguments = ["bytes", {"sum": ["cost"]}]
    *grown, stays, rest = page.evaluate(GROWN, [columns, pieces, *arguments])
    *whole, same, same_rest = page.evaluate(GROWN, [columns, [len(who)], *arguments])
    np.testing.assert_array_equal(np.concatenate(grown), np.concatenate(whole))
    assert (stays, rest) == (same, same_rest)
    assert stays.count("L") > 20
    assert 0 < rest.count("L") <= 32, "a block: what is written anew as the curve grows is short"
    own = [who == seed for seed in range(seeds)]
    count = min(mask.sum() for mask in own)
    ends = [np.append(sums[:-1], sums[-2]) for sums in (np.cumsum(cost[mask]) for mask in own)]
    np.testing.assert_allclose(grown[0], np.mean([one[:count] for one in ends], axis=0), rtol=1e-12)
    values = np.ma.masked_invalid([y[mask][:count] for mask in own])
    mean = values.mean(axis=0)
    np.testing.assert_allclose(grown[1], mean.filled(np.nan), rtol=1e-12)
    if seeds > 1:
        np.testing.assert_allclose(grown[2], (mean - values.std(axis=0)).filled(np.nan), atol=1e-7)
