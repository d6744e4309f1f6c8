"""The table of epochs, and the measures of a run's epochs, are those of trainings laid out."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.oracles.drawing import answer_of, seeds
from tests.oracles.epoch_marks import PARTS, Training
from tracer.analysis.report.epochs import epochs
from tracer.analysis.studies.measures import of_trace

pytestmark = pytest.mark.slow

TRAININGS = seeds(20)


def answered(made, ask):
    """Returns what a function tells of the recording of a training."""
    return answer_of(ask, made.tables, **made.manifest)


def same(found, expected):
    if expected is None:
        return found is None or pd.isna(found)
    return found == pytest.approx(expected)


@pytest.mark.parametrize("seed", TRAININGS)
def test_each_epoch_has_the_means_of_those_that_were_recorded_as_a_whole(seed):
    made = Training(seed, jobs=1 + seed % 3)
    expected = made.table()
    found = answered(made, epochs).to_dict("records")
    assert [(row["epoch"], row["jobs"]) for row in found] == [
        (row["epoch"], row["jobs"]) for row in expected
    ]
    for row, right in zip(found, expected, strict=True):
        for part in PARTS:
            assert same(row[part], right[part]), (part, row, right)


@pytest.mark.parametrize("seed", TRAININGS[: len(TRAININGS) // 2])
def test_the_first_epoch_of_a_run_is_that_of_the_least_number(seed):
    made = Training(seed, jobs=1, folds=False)
    found = answered(made, of_trace)
    for name, right in made.measures().items():
        assert same(found[name], right), (name, found[name], right)


def test_the_first_trainings_have_partial_epochs_and_passes():
    """Without this, the comparisons above might be of whole epochs of one pass only.

    The number of trainings that resume varies much: few of another twenty may do so by chance.
    """
    partial = passes = resumed = 0
    first = range(1, 21)
    for seed in first:
        made = Training(seed, jobs=1 + seed % 3)
        partial += any(not made.is_whole(epoch) for epoch in made.epochs)
        marks = [(epoch.pid, epoch.number) for epoch in made.epochs]
        passes += len(marks) > len(set(marks))
        resumed += made.epochs[0].number == 5
    assert min(partial, passes, resumed) > len(first) // 10
