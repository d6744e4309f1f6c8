"""One call for every model."""

import numpy as np
import pytest

from tests.support.page_runs import drawn
from tracer.analysis.memory.best import best_misses
from tracer.analysis.memory.lru import lru_misses
from tracer.analysis.memory.prediction import MODELS, predict
from tracer.analysis.memory.two_lists import two_lists
from tracer.probes.errors import UsageError


def test_results_are_added_up_by_group():
    runs = drawn(1, 300, [40, 90], tenants=2, groups=4)
    capacities = np.array([[10, 60, 130], [20, 5, 130]])
    found = predict(runs, capacities, ra_pages=16)
    assert found.accessed.tolist() == runs.accessed().tolist()
    for at in range(3):
        one = two_lists(runs, capacities[:, at], ra_pages=16)
        for group in range(runs.groups):
            own = runs.group == group
            assert found.missed[group, at] == one.missed[own].sum()
            assert found.read[group, at] == one.read[own].sum()


def test_models_without_read_ahead_read_what_they_miss():
    runs = drawn(2, 200, [40, 90])
    lru, least = predict(runs, [5, 50], model="lru"), predict(runs, [5, 50], model="min")
    assert lru.missed.tolist() == lru.read.tolist() == lru_misses(runs, [5, 50]).missed.tolist()
    assert least.missed.tolist() == least.read.tolist() == best_misses(runs, [5, 50]).tolist()


@pytest.mark.parametrize("model", MODELS)
def test_each_model_reads_each_page_once_if_all_fit(model):
    runs = drawn(3, 100, [40, 90], kinds=(0,), groups=2)
    found = predict(runs, [130], ra_pages=0, model=model)
    assert found.read.sum() == len(
        {p for r in zip(runs.first, runs.pages, strict=True) for p in range(r[0], r[0] + r[1])}
    )


def test_threads_change_nothing():
    runs = drawn(4, 200, [40, 90])
    one = predict(runs, range(0, 140, 20), threads=1)
    two = predict(runs, range(0, 140, 20), threads=2)
    assert one.read.tolist() == two.read.tolist()


def test_a_model_that_is_unknown_is_refused():
    with pytest.raises(UsageError, match="no model"):
        predict(drawn(5, 3, [4]), [1], model="fifo")
