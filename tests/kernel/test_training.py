"""The recorded phases of a real training run are what the workload did."""

import contextlib
import json
import os
import signal
import subprocess
import sys

from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.analysis.views.in_phase import in_phase
from tracer.phases import MARKS_ENV
from tracer.store.trace import Trace


def test_phases_steps_and_epochs_equal_the_workloads_own(tracer, tmp_path):
    ran = tracer(
        "record", "-o", "x.trace", "--",
        sys.executable, "-m", "tracer.workloads", "train", "lenet",
        "--steps", "23", "--samples", "160", "--batch-size", "16", "--workers", "1",
        "--output", tmp_path / "run",
    )  # fmt: skip
    did = json.loads(ran.out.splitlines()[-1])
    assert (did["steps"], did["epochs"]) == (23, 3)  # 10 + 10 + 3 steps

    report = tracer("report", "x.trace", "--json").json
    phases = {row["name"]: row for row in report["tables"]["phases"]}
    assert (phases["train"]["count"], phases["train"]["steps"]) == (1, did["steps"])
    assert phases["train"]["epochs"] == phases["epoch"]["count"] == did["epochs"]
    inferred = 3  # a quarter of 160 in batches of 16
    for name, count in {
        "step": inferred,
        "forward": inferred,
        "backward": 0,
        "optimizer": 0,
    }.items():
        assert phases[name]["count"] == did["steps"] + count, name
    assert phases["checkpoint"]["count"] == did["epochs"]
    assert phases["inference"]["count"] == 1
    assert phases["train"]["calls"] > phases["step"]["calls"] > 0

    counts = {row["event"]: row for row in report["tables"]["event_counts"]}
    assert counts["raw_syscalls:sys_enter"]["child"] > 0  # the DataLoader's worker
    assert report["loss"] == {"events": 0, "windows": 0, "unknown": 0, "others": 0}
    assert report["own_cost"]["cpu_s"] > 0
    for name in ("syscalls", "page_faults", "block_latency", "event_counts"):
        assert report["tables"][name], name

    with Trace(tmp_path / "x.trace") as trace:
        stages = trace.rows(
            "SELECT stage, count(epoch), count(*) - count(epoch), count(DISTINCT epoch) FROM"
            f" {in_phase(trace, 'syscalls')} WHERE phase = 'fetch'"
            " AND tid IN (SELECT tid FROM processes WHERE role = 'child') GROUP BY stage"
        )
    (train,) = [row for row in stages if row[0] == "train"]  # of the loader's workers
    assert train[1] > 0 and train[2:] == (0, did["epochs"])

    info = tracer("info", "x.trace", "--json").json
    assert info["tables"]["phases"]["rows"] == sum(row["count"] for row in phases.values())

    simulated = tracer("simulate", "x.trace", "--json").json
    assert simulated["model"] == "paper"
    assert simulated["requests"] >= simulated["unique_pages"] >= 0
    assert simulated["assumptions"]


STEPS = """
import itertools, os, time
from tracer import phases
for step in itertools.count():
    with phases.phase("step", step=step): time.sleep(0.01)
    os.write(1, b"x")
"""


def test_marks_of_a_process_that_is_attached_to(tmp_path):
    """Each step that it has made since the recording began is there, and none from before."""
    marks, made = tmp_path / "marks", tmp_path / "made"
    marks.mkdir()
    environment = {**os.environ, MARKS_ENV: str(marks)}
    with (
        made.open("wb") as out,
        subprocess.Popen([sys.executable, "-c", STEPS], env=environment, stdout=out) as job,
        contextlib.ExitStack() as ends,
    ):
        ends.callback(job.kill)
        wait_for(lambda: made.stat().st_size, "a step")
        earlier = made.stat().st_size
        recorder = ends.enter_context(
            Tracer("record", "-o", "x.trace", "-p", job.pid, cwd=tmp_path)
        )
        ends.callback(job.kill)  # so that the recorder ends, too
        said = recorder.stderr.readline()
        begun = made.stat().st_size
        wait_for(lambda: made.stat().st_size >= begun + 23, "more steps")
        recorder.send_signal(signal.SIGINT)
        _, err = recorder.communicate(timeout=120)
        assert recorder.returncode == 0, said + err
    with Trace(tmp_path / "x.trace") as trace:
        ((count, first, last, *of),) = trace.rows(
            "SELECT count(*), min(step), max(step), count(DISTINCT pid), any_value(pid)"
            " FROM phases WHERE name = 'step'"
        )
    assert count == last - first + 1
    # The first one that ends in the recording may have begun before.
    assert earlier <= first <= begun + 1
    assert last >= begun + 22
    assert of == [1, job.pid]
