"""The Pareto front, held against the definition by trying every pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.analysis.studies.pareto import pareto_front

small = st.integers(0, 6).map(float) | st.just(float("nan"))


def beaten(points, one):
    """Returns whether another point is no worse in both figures and better in one."""
    return any(
        other[0] <= one[0] and other[1] <= one[1] and (other[0] < one[0] or other[1] < one[1])
        for other in points
    )


@given(st.lists(st.tuples(small, small), max_size=12))
def test_a_point_is_on_the_front_if_no_other_beats_it(points):
    times, energies = (np.array([p[axis] for p in points], float) for axis in (0, 1))
    expected = [not np.isnan(p).any() and not beaten(points, p) for p in points]
    assert pareto_front(times, energies).tolist() == expected


def test_the_front_is_drawn_from_the_least_energy_on():
    times = np.array([9.0, 7.0, 8.0, 3.0, 4.0])
    energies = np.array([10.0, 12.0, 11.0, 30.0, 31.0])
    assert pareto_front(times, energies).tolist() == [True, True, True, True, False]


@pytest.mark.parametrize("size", [0, 1])
def test_few_points_are_all_on_it(size):
    assert pareto_front(np.ones(size), np.ones(size)).tolist() == [True] * size
