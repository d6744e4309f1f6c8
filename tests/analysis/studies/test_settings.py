"""Settings: runs that differ have different ones, whichever of them are more."""

import pandas as pd
import pytest

from tests.support.run_frames import row, run
from tracer.analysis.studies.papers import prashanthi2023
from tracer.analysis.studies.spread import settings

LIMITED = {"memory": "700m", "cpus": None}
FREE = {"memory": None, "cpus": None}


def of_runs(*several):
    return pd.DataFrame([{**run(repeat=n), **one, "id": str(n)} for n, one in enumerate(several)])


@pytest.mark.parametrize("runs", [[LIMITED, FREE], [FREE, LIMITED], [FREE, FREE, LIMITED]])
def test_runs_without_a_limit_are_the_usual_ones_unless_most_have_it(runs):
    expected = ["memory 700m" if one is LIMITED else "" for one in runs]
    assert settings(of_runs(*runs)).tolist() == expected


def test_few_runs_without_the_limit_of_most_say_so():
    found = settings(of_runs(LIMITED, LIMITED, FREE))
    assert found.tolist() == ["", "", "memory not set"]


def test_a_habit_that_is_meant_if_none_is_given_is_the_same():
    found = settings(of_runs({"checkpoint_way": "truncate"}, {"checkpoint_way": None}))
    assert found.tolist() == ["", ""]


def test_runs_with_a_limit_pair_among_themselves():
    """A limit doubles the time in a container; without it, a container costs nothing."""
    rows = [
        {**run(where, repeat, "lenet"), "id": f"{where}{repeat}{memory}", "memory": memory,
         "stage": "train", "part": "compute", "mean_ms": ms}
        for repeat in range(2)
        for where, memory, ms in (
            ("host", "700m", 10.0), ("1", "700m", 20.0), ("host", None, 30.0), ("1", None, 30.0),
        )
    ]  # fmt: skip
    found = prashanthi2023.minibatch_times(pd.DataFrame(rows))
    for told, increase in (("", 0), ("memory 700m", 100)):
        one = row(found, model="lenet", mode="train", part="compute", settings=told)
        assert (one["increase_percent"], one["pairs"]) == (pytest.approx(increase), 2)
