"""Folders of marks that the recorder finds while it records, and those of a killed recorder."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT
from tests.support.recorder import guardian_of, kill
from tests.support.waiting import wait_for, wait_for_rounds
from tests.support.warm import Tracer
from tracer.phases import MARKS_ENV
from tracer.store.marks import NAMES
from tracer.store.trace import Trace

STEPS = 7
JOB = f"""
import sys
from tracer import phases
name, done = sys.argv[1:]
for step in range({STEPS}):
    with phases.phase(name, step=step):
        pass
open(done, "w").close()
sys.stdin.read()
"""
ENTER = 'echo $$ > "$CGROUP/cgroup.procs"'
MARK = f"export {MARKS_ENV}=$PLACE"
LOOKED = "sleep 0.4"
"""The recorder has looked at the process meanwhile."""
MADE = f'mkdir -p "$PLACE"; {MARK}; {ENTER}'
RELATIVE = f'mkdir -p "$PLACE"; cd "$PLACE/.."; {ENTER}; {MARKS_ENV}=${{PLACE##*/}} exec "$@"'
OVER = f'mount -t tmpfs none "$PLACE" && {MARKS_ENV}=$PLACE exec "$@"'
JOBS = {
    "made later": ("1", f'{MARK}; {ENTER}; {LOOKED}; mkdir "$PLACE"; exec "$@"'),
    "replaced": ("2", f'{MADE}; {LOOKED}; rm -r "$PLACE"; mkdir "$PLACE"; exec "$@"'),
    "relative": ("3/m", RELATIVE),
    "relative elsewhere": ("4/m", RELATIVE),
    "in user namespace": ("5", f'{MADE}; exec unshare --user "$@"'),
    "in mount namespace": (
        "6",
        f"""mkdir "$PLACE"; {ENTER}; exec unshare --mount sh -c '{OVER}' sh "$@" """,
    ),
    "in this pid namespace": ("7", f'{MADE}; exec "$@"'),
    "hostile": ("9", f'{MADE}; exec "$@"'),
    "in another pid namespace": ("7", f'{MADE}; {LOOKED}; exec unshare --pid --fork "$@"'),
}
"""Jobs that join the cgroup: the folder of its marks, PLACE, and the script of each."""
CHILD = f'read line; mkdir "$PLACE"; {MARKS_ENV}=$PLACE "$@"; :'
"""The script of a shell that is recorded itself: the job is its child."""


@pytest.fixture
def start(tmp_path, joined):
    """Starts a job, which ends with the test; returns its first process."""
    started = []

    def run(name, place, script):
        job = [sys.executable, "-S", "-c", JOB, name, tmp_path / name]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CGROUP": str(joined)}
        environment["PLACE"] = str(tmp_path / place)
        command = ["bash", "-c", script, "bash", *job]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment))
        return started[-1]

    yield run
    for process in started:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.communicate()


def identity(path):
    status = path.stat()
    return status.st_dev, status.st_ino


def are_held(recorder, folders):
    """Returns whether a recorder has these folders open."""
    held = set()
    for fd in Path(f"/proc/{recorder.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            held.add(identity(fd))
    return {identity(folder) for folder in folders} <= held


def plant(folder, secret):
    """Puts files that are no marks into a folder."""
    first, second, third, fourth = (folder / f"1-{1 << 60}-{n}.marks" for n in range(4))
    first.symlink_to(secret)
    os.mkfifo(second)
    third.mkdir()
    fourth.touch()
    os.truncate(fourth, 1 << 40)


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
def test_jobs_have_their_marks(start, joined, tmp_path, killed):
    secret = tmp_path / "secret"
    shell = start("of a child", "8", CHILD)
    options = ("--backend", "none", "--sample-hz", "0", "--cgroup", joined, "-p", shell.pid)
    recorder = Tracer("record", "-o", "x.trace", *options, cwd=tmp_path)
    try:
        wait_for((tmp_path / "x.trace/raw/threads.json").exists, "the recording")
        jobs = {name: start(name, *job) for name, job in JOBS.items()}
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        for name in ("of a child", *jobs):
            wait_for((tmp_path / name).exists, f"the job {name}")
        folders = [Path(f"/proc/{shell.pid}/root{tmp_path}/8")]
        for name, (place, _) in JOBS.items():
            folders.append(Path(f"/proc/{jobs[name].pid}/root{tmp_path}/{place}"))
        wait_for(lambda: are_held(recorder, folders), "the folders")
        names = tmp_path / "x.trace/raw/marks" / NAMES
        wait_for(
            lambda: names.exists() and b"1-" in names.read_bytes(), "the pid of the one inside"
        )
        wait_for_rounds(recorder.pid, 3)
        secret.write_bytes(b"secret" * 64)
        plant(tmp_path / "9", secret)
        pids = {name: job.pid for name, job in jobs.items()} | {"of a child": shell.pid}
        for name in ("in another pid namespace", "of a child"):
            (child,) = psutil.Process(pids[name]).children()
            pids[name] = child.pid
        if killed:
            guardian = guardian_of(tmp_path / "x.trace")
            kill(recorder)
            guardian.wait(30)
        else:
            recorder.terminate()
            _, err = recorder.communicate(timeout=120)
            assert recorder.returncode == 0, err
    finally:
        kill(recorder)
    with Trace(tmp_path / "x.trace") as trace:
        losses = trace.rows("SELECT cause FROM loss WHERE stream = 'marks' ORDER BY cause")
        found = trace.rows("SELECT name, pid, list(step ORDER BY start) FROM phases GROUP BY ALL")
    assert losses == [
        ("1 files of marks left out: too long",),
        ("3 files of marks left out: not a regular file",),
    ]
    assert {name: steps for name, _, steps in found} == {
        name: [*range(STEPS)] for name in (*JOBS, "of a child")
    }
    assert {name: pid for name, pid, _ in found} == pids
