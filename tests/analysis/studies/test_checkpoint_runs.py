"""Checkpoints of a study's runs: what the jobs tell of them, and runs of other habits."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.support.studies import make_study
from tracer.analysis.studies import claims
from tracer.analysis.studies.extracts import read_extracts
from tracer.analysis.studies.runs import checkpoints_of, read_runs, used, work_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("summaries", "checkpoints", "checkpoint_bytes"),
    [
        ([], None, None),
        ([None], None, None),
        ([{"epochs": 2}], None, None),
        ([{"checkpoints": 10, "checkpoint_bytes": 7}], 10, 7),
        ([{"checkpoints": 10, "checkpoint_bytes": 7}] * 4, 10, 28),
        ([{"checkpoints": 10, "checkpoint_bytes": 7}, None], None, None),
        ([{"checkpoints": 10, "checkpoint_bytes": 7}, {"checkpoints": 9}], None, None),
    ],
)
def test_checkpoints_are_what_all_jobs_tell(summaries, checkpoints, checkpoint_bytes):
    assert checkpoints_of({"state": "done", "summaries": summaries}) == {
        "checkpoints": checkpoints,
        "checkpoint_bytes": checkpoint_bytes,
    }


@pytest.mark.parametrize(
    ("summaries", "work"),
    [
        ([], None),
        ([None], None),
        ([{"epochs": 2}], None),
        ([{"steps": 0}], None),
        ([{"steps": 380, "epochs": 10}], 380),
        ([{"steps": 380}] * 4, 1520),
        ([{"steps": 380}, {"epochs": 2}], None),
        ([{"batches": 24600}], 24600),
        ([{"server": {}, "client": {"requests": 20, "answered": 19}}], 19),
    ],
)
def test_work_is_in_steps_batches_or_answered_requests_of_all_jobs(summaries, work):
    assert work_of({"state": "done", "summaries": summaries}) == {"work": work}


def test_runs_and_extracts_have_the_work_of_their_jobs(tmp_path):
    folder = make_study(tmp_path / "s", reported=True)
    path = folder / "runs/1-0/run.json"
    told = json.loads(path.read_text())
    told["summaries"][0]["steps"] = 380
    path.write_text(json.dumps(told))
    runs = read_runs(folder)[1]
    times = read_extracts(folder, runs).frames["step_times"]
    for frame in (runs, times):
        assert set(frame.loc[frame["id"] == "1-0", "work"]) == {380}
        assert frame.loc[frame["id"] == "1-1", "work"].isna().all()


def test_an_extract_has_the_checkpoints_of_its_run(tmp_path):
    folder = make_study(tmp_path / "s", reported=True)
    path = folder / "runs/1-0/run.json"
    told = json.loads(path.read_text())
    told["summaries"][0] |= {"checkpoints": 3, "checkpoint_bytes": 4096}
    path.write_text(json.dumps(told))
    curves = read_extracts(folder, read_runs(folder)[1]).frames["layer_curve"]
    known = curves[curves["id"] == "1-0"]
    assert set(known["checkpoints"]) == {3} and set(known["checkpoint_bytes"]) == {4096}
    assert curves.loc[curves["id"] == "1-1", "checkpoints"].isna().all()
    counted = curves.groupby("id")[["written", "distinct"]].first()
    assert (counted["written"] >= counted["distinct"]).all()


def test_a_claim_is_about_runs_of_the_usual_habit():
    rows = [
        {"model": "lenet", "mode": "train", "where": "1", "repeat": n, "improvement": value,
         "checkpoint_every": every, "checkpoint_way": way}
        for value, every, way in (
            (0.9, None, np.nan), (0.91, "epoch", "truncate"), (0.1, "end", None),
            (0.2, None, "new"), (0.3, "10", "truncate"),
        )
        for n in range(2)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    usual = claims.judge(frame[:4])
    assert claims.judge(frame) == usual
    assert any(one.values for one in usual)


@pytest.mark.parametrize(
    ("factors", "epochs"),
    [({"epochs": 3}, {"epochs": 27}), ({"epochs": 3, "at_least": 6}, {}), ({"at_most": 6}, {})],
)
def test_the_epochs_of_a_training_by_time_are_no_factor(factors, epochs):
    """A slower place does fewer of them, and its runs are compared all the same."""
    summaries = [{"workers": 4, "batch_size": 16, "epochs": 27}]
    found = used({"state": "done", "factors": factors, "summaries": summaries})
    assert found == {"workers": 4, "batch_size": 16, **epochs}
