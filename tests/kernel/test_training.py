"""The recorded phases of a real training run are what the workload did."""

import json
import sys

from tracer.analysis.views.in_phase import in_phase
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


def test_marks_of_a_process_that_is_attached_to(tracer, tmp_path):
    import os
    import subprocess

    from tracer.phases import MARKS_ENV

    marks = tmp_path / "marks"
    marks.mkdir()
    source = (
        "import time; from tracer import phases\n"
        "for step in range(100):\n"
        "    with phases.phase('step', step=step): time.sleep(0.05)\n"
    )
    environment = {**os.environ, MARKS_ENV: str(marks)}
    with subprocess.Popen([sys.executable, "-c", source], env=environment) as job:
        tracer("record", "-o", "x.trace", "-p", job.pid, "-d", "1")
        job.kill()
    with Trace(tmp_path / "x.trace") as trace:
        rows = trace.connection.execute(
            "SELECT count(*), count(DISTINCT pid), any_value(pid) FROM phases WHERE name = 'step'"
        ).fetchone()
    assert 5 < rows[0] < 40
    assert rows[1:] == (1, job.pid)
