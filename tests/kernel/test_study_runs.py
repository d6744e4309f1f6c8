"""Runs of a real study: the reasons for which they fail, and a study that was killed."""

import json
import subprocess
import sys

import pytest

from tests.support.loads import finished
from tests.support.study_folders import results
from tracer.workloads.modes.setting import STATE
from tracer.workloads.modes.writeback_timers import WritebackTimers

pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.settings

STUDY = """
name = "mine"
repeats = 1
scale = 0.002
record = {record}
[[runs]]
model = "lenet"
workers = 0
epochs = 1
cache = "kept"
medium = "{medium}"
"""
QUICK = ("--time-scale", "0.01", "--scratch", "512m")

KILLED = """
import os, signal
from tracer.workloads.modes.setting import PowerModes
from tracer.workloads.modes.writeback_timers import WritebackTimers
with PowerModes(True) as modes, modes.also(WritebackTimers(), 0.5):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def study(tmp_path):
    """Runs a study in the folder `s` to its end."""

    def run(record=("-e", "syscalls"), medium="disk"):
        text = STUDY.format(record=json.dumps(record), medium=medium)
        (tmp_path / "mine.toml").write_text(text)
        return finished(("study", "run", "mine.toml", "-o", "s", *QUICK), tmp_path)

    return run


def test_a_run_whose_recording_ended_early_has_failed(study, tmp_path):
    ran = study(record=("-e", "syscalls", "--max-size", "64K"))
    (one,) = results(tmp_path / "s").values()
    assert (one["state"], one["reason"]) == (
        "failed", "the recording ended early: the size limit was reached",
    )  # fmt: skip
    assert one["summaries"][0]["epochs"] == 1
    assert (ran.status, json.loads(ran.out)["failed"]) == (1, 1)


def test_the_modes_of_a_killed_study_are_restored_before_the_next_one_is_loaded(tmp_path):
    before = WritebackTimers().remember()
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert killed.returncode == -9
    assert (STATE / "power_mode.json").exists()
    assert WritebackTimers().remember() != before
    ran = finished(("study", "run", "no-such-study"), tmp_path)
    assert ran.status == 2
    assert WritebackTimers().remember() == before
    assert not (STATE / "power_mode.json").exists()


@pytest.mark.parametrize("link", ["absent", "."])
def test_a_link_in_the_place_of_a_run_ends_the_study_with_a_remedy(study, tmp_path, link):
    absent = str(tmp_path / "no medium")
    assert study(medium=absent).status == 1
    (name,) = results(tmp_path / "s")
    place = tmp_path / "s/runs" / name
    place.rename(tmp_path / "kept")
    place.symlink_to(link)
    ran = study(medium=absent)
    assert ran.status == 2
    assert f"{place} has no result of a run, and is a link" in ran.err
    assert "remove it, or mount the disk that the link names" in ran.err
    place.unlink()
    assert json.loads(study(medium=absent).out)["failed"] == 1
