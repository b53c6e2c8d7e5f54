"""Which regions of the Earth satellites fly over, and rows that are shared by it."""

from __future__ import annotations

from datetime import UTC, datetime
from math import pi, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.config.errors import UserError
from fedpareto.problems import partitions
from fedpareto.problems.images_text.images import FashionMNIST
from fedpareto.problems.partitions import UNASSIGNED
from fedpareto_space.orbits.circular import Shell
from fedpareto_space.orbits.earth import DAY, GRAVITY, RADIUS
from fedpareto_space.tracks import scattered, times_above

START = datetime(2026, 1, 1, tzinfo=UTC)
POLES_AND_EQUATOR = np.array([[90.0, 0.0], [-90.0, 0.0], [0.0, 0.0], [0.0, 90.0], [0.0, 180.0], [0.0, -90.0]])


def stream(seed=0):
    return np.random.default_rng(seed)


def test_an_equatorial_satellite_sees_each_quarter_of_the_equator_equally_long_and_no_pole():
    """In a turn relative to the ground, which J2 makes shorter by less than a hundredth."""
    orbits = Shell(1, 1, 0, altitude=1000.0, inclination=0.0).orbits(START)
    turn = 2 * pi / (sqrt(GRAVITY / (RADIUS + 1000) ** 3) - 2 * pi / 86164.1)
    seen = times_above(orbits, POLES_AND_EQUATOR, START, turn, step=1.0)[:, 0]
    assert seen[:2].tolist() == [0, 0]
    assert seen[2:] == pytest.approx([turn / 4] * 4, rel=0.01)


def test_a_polar_satellite_is_above_a_polar_cap_for_as_long_as_the_arc_is():
    """Of six centres a pole's region begins at 45°, or at arctan √½ = 35.3° where two others meet."""
    orbits = Shell(1, 1, 0, inclination=90.0).orbits(START)
    seen = times_above(orbits, POLES_AND_EQUATOR, START, DAY)[:, 0]
    assert seen[0] == pytest.approx(seen[1], rel=0.02)
    assert 2 * (90 - 45) / 360 < seen[0] / DAY < 2 * (90 - 35.3) / 360
    assert seen.sum() == pytest.approx(DAY)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 30), hours=st.floats(0.01, 5))
def test_every_moment_counts_for_one_region(seed, count, hours):
    seen = times_above(Shell(6, 3, 1).orbits(START), scattered(count, stream(seed)), START, hours * 3600)
    assert seen.shape == (count, 6)
    assert seen.sum(axis=0) == pytest.approx(np.full(6, hours * 3600))
    assert (seen >= 0).all()


def test_places_are_scattered_evenly_over_the_globe():
    latitude, longitude = scattered(20_000, stream()).T
    assert np.mean(np.abs(latitude) < 30) == pytest.approx(0.5, abs=0.02)  # sin 30° = ½
    assert np.mean(longitude > 90) == pytest.approx(0.25, abs=0.02)


def test_satellites_of_a_plane_see_alike_at_first_and_in_a_day_everybody_does():
    def distances(hours):
        """Between the mixtures of classes of two clients: in one plane, and in two."""
        seen = times_above(Shell().orbits(START), scattered(10, stream(1)), START, hours * 3600)
        share = seen / seen.sum(axis=1, keepdims=True)
        mixture = share / share.sum(axis=0)
        apart = np.abs(mixture[:, :, None] - mixture[:, None]).sum(axis=0) / 2
        plane = np.arange(40) // 8
        in_one = plane[:, None] == plane
        return apart[in_one & ~np.eye(40, dtype=bool)].mean(), apart[~in_one].mean()

    near, far = distances(3)
    assert far > 3 * near
    assert max(distances(24)) < 0.05 < near


# -- rows ----------------------------------------------------------------------------------------------------------


def test_shares_are_those_of_the_times():
    classes = np.repeat([0, 1, 2], [400, 200, 100])
    owner = partitions.by_sight(classes, np.array([[30.0, 10.0], [0.0, 5.0], [0.0, 0.0]]), stream())
    counts = [np.bincount(owner[classes == k] + 1, minlength=3).tolist() for k in range(3)]
    assert counts == [[0, 300, 100], [0, 0, 200], [100, 0, 0]]


def test_who_sees_nothing_gets_a_few_rows_and_what_nobody_sees_stays_left_over():
    classes = np.repeat([0, 1], [500, 50])
    owner = partitions.by_sight(classes, np.array([[1.0, 0.0, 3.0], [0.0, 0.0, 0.0]]), stream())
    assert np.bincount(owner[owner != UNASSIGNED]).tolist() == [125, partitions.FEWEST, 365]
    assert (owner[classes == 1] == UNASSIGNED).all()


@pytest.mark.parametrize("seed", [0, 7])
def test_every_row_is_dealt_once_to_the_satellites_of_a_shell_and_the_seed_decides(seed):
    labels = stream(3).integers(0, 10, 4_000)
    problem = FashionMNIST(partition="ground-track")
    owner, again, other = (
        problem._partitioned(labels, 40, np.random.default_rng(number)) for number in (seed, seed, seed + 1)
    )
    assert problem.default_clients() == 40
    assert sorted(set(owner.tolist())) == list(range(40))
    assert np.array_equal(owner, again)
    assert not np.array_equal(owner, other)


def test_what_does_not_fit_is_refused_with_what_would_be_right():
    with pytest.raises(UserError, match=r"40 satellites \(40/5/1\), not of 20 clients; take clients: 40, or another"):
        FashionMNIST(partition="ground-track")._partitioned(np.zeros(4_000, dtype=int), 20, stream())
    with pytest.raises(UserError, match="track_hours is 0; it is above 0"):
        FashionMNIST(partition="ground-track", track_hours=0.0)
    with pytest.raises(UserError, match="shell '40' is no satellites/planes/phasing such as 40/5/1"):
        FashionMNIST(partition="ground-track", track_shell="40")
