"""Marks of processes that join a cgroup while it is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.support.waiting import wait_for
from tracer.phases import MARKS_ENV
from tracer.store.trace import Trace

STEPS = 17
JOB = f"""
import sys, time
from tracer import phases
for step in range({STEPS}):
    with phases.phase("step", epoch=0, step=step):
        time.sleep(0.001)
open(sys.argv[1], "w").close()
sys.stdin.read()
"""
MOVED = f"""
import sys
from tracer import phases
def mark(*steps):
    for step in steps:
        with phases.phase("step", epoch=0, step=step):
            pass
mark(*range({STEPS}))
print("before", flush=True)
sys.stdin.readline()
mark({STEPS}, {STEPS} + 1)
print("after", flush=True)
sys.stdin.read()
"""
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
MARKS = ("-e", "syscalls")
"""A recording of marks, and hardly anything else."""


@pytest.fixture
def start(tmp_path):
    """Starts a shell with a script; its job ends with its standard input."""
    started = []
    (tmp_path / "marks").mkdir()

    def run(script, *arguments):
        job = [sys.executable, "-c", JOB, str(tmp_path / "done")]
        command = ["sh", "-c", script, "sh", *map(str, arguments), *job]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def steps(recording, tmp_path):
    """Ends the recording; returns the steps that it has."""
    recording.terminate()
    _, err = recording.communicate(timeout=120)
    assert recording.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        assert not trace.rows("SELECT * FROM loss WHERE stream = 'marks'")
        return [step for (step,) in trace.rows("SELECT step FROM phases WHERE name = 'step'")]


MARK = f"export {MARKS_ENV}=$1; shift"


@pytest.mark.parametrize(
    "script",
    [
        f'{MARK}; echo $$ > "$1/cgroup.procs"; shift; exec "$@"',
        f'folder=$1; shift; echo $$ > "$1/cgroup.procs"; shift; {MARKS_ENV}=$folder "$@"',
        f'folder=$1; shift; echo $$ > "$1/cgroup.procs"; shift; sleep 1; {MARKS_ENV}=$folder '
        'exec "$@"',
    ],
    ids=["it joins with its environment", "its child has another", "it gets another later"],
)
def test_a_job_that_joins_has_all_of_its_marks(recorder, start, joined, tmp_path, script):
    recording = recorder(*MARKS, "--cgroup", joined)
    start(script, tmp_path / "marks", joined)
    wait_for((tmp_path / "done").exists, "the marks")
    assert sorted(steps(recording, tmp_path)) == list(range(STEPS))


def test_a_job_that_is_moved_into_the_cgroup_has_its_later_marks(recorder, joined, tmp_path):
    """It has marked before the recording, and goes on in the same file."""
    (tmp_path / "marks").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), MARKS_ENV: str(tmp_path / "marks")}
    with subprocess.Popen([sys.executable, "-c", MOVED], env=environment, **PIPES) as job:
        assert job.stdout.readline() == "before\n"
        recording = recorder(*MARKS, "--cgroup", joined)
        (joined / "cgroup.procs").write_text(str(job.pid))
        job.stdin.write("\n")
        job.stdin.flush()
        assert job.stdout.readline() == "after\n"
        assert [step for step in steps(recording, tmp_path) if step >= STEPS] == [STEPS, STEPS + 1]
        job.kill()


def test_a_command_in_the_recorded_cgroup_has_its_marks_once(tracer, joined, tmp_path):
    enter = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'
    job = [sys.executable, "-c", JOB, tmp_path / "done"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["--", "sh", "-c", enter, "sh", joined, *job]
    tracer("record", *MARKS, "--cgroup", joined, *command, env=environment)
    (trace,) = tmp_path.glob("*.trace")
    with Trace(trace) as opened:
        assert not opened.rows("SELECT * FROM loss WHERE stream = 'marks'")
        found = opened.rows("SELECT step FROM phases WHERE name = 'step' ORDER BY step")
    assert found == [(step,) for step in range(STEPS)]


def test_folders_beyond_a_number_are_left_out_and_counted(recorder, joined, tmp_path):
    """Processes that each name another folder: the first ones' are opened."""
    recording = recorder(*MARKS, "--cgroup", joined)
    names = 'echo $$ > "$1/cgroup.procs"; for n in $(seq 90); do A=$n sleep 30 & done; wait'
    script = names.replace("A=$n", f"{MARKS_ENV}=$2/$n")
    with subprocess.Popen(["sh", "-c", script, "sh", joined, tmp_path / "many"]) as shell:
        listed = tmp_path / "x.trace/raw/members.jsonl"
        wait_for(lambda: len(listed.read_text().splitlines()) > 91, "the processes")
        recording.terminate()
        _, err = recording.communicate(timeout=120)
        for pid in (joined / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        shell.wait()
    assert recording.returncode == 0, err
    with Trace(tmp_path / "x.trace") as trace:
        told = trace.rows("SELECT cause FROM loss WHERE stream = 'marks'")
    many = 90 - 64
    assert told == [(f"{many} files of marks left out: too many processes and folders at a time",)]
