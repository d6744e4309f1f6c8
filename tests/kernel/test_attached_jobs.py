"""Jobs that run when their recording begins: only steps whose events are recorded count."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import ROOT
from tests.support.recorder import record_until
from tests.support.waiting import wait_for
from tracer.analysis.report.step_times import STEP_TIMES
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.phases import MARKS_ENV
from tracer.store.trace import Trace

JOB = """
import os, time
from tracer import phases
step = 0
while True:
    with phases.phase("step", epoch=0, step=step):
        time.sleep(0.001)
    step += 1
    os.write(1, b"x")
"""


def test_each_step_of_a_running_job_has_the_events_of_its_time(tmp_path):
    marks, made = tmp_path / "marks", tmp_path / "made"
    marks.mkdir()
    environment = {**os.environ, MARKS_ENV: str(marks), "PYTHONPATH": str(ROOT)}
    with (
        made.open("wb") as out,
        subprocess.Popen([sys.executable, "-c", JOB], env=environment, stdout=out) as job,
    ):
        try:
            wait_for(lambda: made.stat().st_size > 20, "20 steps")
            options = ("-o", "x.trace", "-e", "sched", "-p", job.pid)
            record_until(made, 23, *options, cwd=tmp_path)
        finally:
            job.kill()
    with Trace(tmp_path / "x.trace") as trace:
        view = critical_path(trace)
        steps, without = trace.rows(
            f"SELECT count(*), count(*) FILTER (slept = 0) FROM (SELECT step, count(*) FILTER"
            f" (kind != 'run') AS slept FROM {view} GROUP BY step)"
        )[0]
        counted = STEP_TIMES.of(trace)["steps"].max()
    assert steps == counted > 20
    assert without == 0
