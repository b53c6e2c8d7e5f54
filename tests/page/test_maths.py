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


@pytest.fixture(scope="module")
def computed(page_server, browser, tmp_path_factory):
    """Calls a function of dominance.js."""
    server = page_server([tmp_path_factory.mktemp("nothing")])
    context = patient(browser)
    page = context.new_page()
    page.goto(server.url)
    yield lambda name, *arguments: page.evaluate(CALL, [name, *arguments])
    context.close()


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
