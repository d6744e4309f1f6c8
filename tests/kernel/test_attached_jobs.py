"""Jobs that run when their recording begins: only steps whose events are recorded count."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from tests.conftest import ROOT
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
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
        contextlib.ExitStack() as ends,
    ):
        ends.callback(job.kill)
        wait_for(lambda: made.stat().st_size > 20, "20 steps")
        command = ("record", "-o", "x.trace", "-e", "sched", "-p", job.pid)
        recorder = ends.enter_context(Tracer(*command, cwd=tmp_path))
        ends.callback(job.kill)  # so that the recorder ends, too
        said = recorder.stderr.readline()
        enough = made.stat().st_size + 23
        wait_for(lambda: made.stat().st_size >= enough, "23 steps more")
        recorder.send_signal(signal.SIGINT)
        _, err = recorder.communicate(timeout=120)
        assert recorder.returncode == 0, said + err
    with Trace(tmp_path / "x.trace") as trace:
        view = critical_path(trace)
        steps, without = trace.rows(
            f"SELECT count(*), count(*) FILTER (slept = 0) FROM (SELECT step, count(*) FILTER"
            f" (kind != 'run') AS slept FROM {view} GROUP BY step)"
        )[0]
        counted = STEP_TIMES.of(trace)["steps"].max()
    assert steps == counted > 20
    assert without == 0
