"""A file that never answers, or may not grow: the recorder ends all the same and says why."""

import resource
import signal
import subprocess

from tests.support.dead_file_system import dead_file_system  # noqa: F401 a fixture
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.session import aside
from tracer.store.trace import Trace

IN_PIECES = """
import glob, os, time

def written():
    return sum(os.path.getsize(path) for path in glob.glob("{raw}/*-target-*"))

while True:
    before = written()
    for _ in range(1009): os.getppid()
    while written() == before: time.sleep(0.001)
"""
"""Makes more calls once the last ones are in a file: the part that no longer fits is small, however
seldom the recorder reads."""


def _files_of_4_mib_at_most():
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, resource.RLIM_INFINITY))


def test_a_limit_of_file_sizes_is_told_as_what_it_is_and_no_full_disk(tracer, load, tmp_path):
    with subprocess.Popen(load(IN_PIECES.format(raw=tmp_path / "x.trace/raw"))) as job:
        try:
            options = ("-o", "x.trace", "-e", "syscalls", "-d", "60", "-p", job.pid)
            ran = tracer("record", *options, before=_files_of_4_mib_at_most, status=1)
        finally:
            job.kill()
    assert "File too large" in ran.err
    assert "ulimit -f" in ran.err
    assert "full" not in ran.err
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "error"
        assert trace.manifest["failure"] == "File too large"
        assert not trace.manifest["complete"]
        (rows,) = trace.connection.execute("SELECT count(*) FROM syscalls").fetchone()
        assert rows > 10_000
        assert trace.connection.execute("SELECT count(*) FROM loss").fetchone()[0] > 0


def _little_patience():
    aside._PATIENCE_S = 3.0


def test_a_reader_that_never_answers_does_not_keep_a_recording_from_its_end(
    tmp_path,
    load,
    dead_file_system,  # noqa: F811
):
    theirs = dead_file_system(b"held")
    with subprocess.Popen(load("import time\ntime.sleep(600)")) as job:
        options = ("-e", "processes", "--residency", theirs.folder, "-p", job.pid)
        told = ("-o", "x.trace", *options, "--sample-hz", "50")
        recorder = Tracer("record", *told, cwd=tmp_path, before=_little_patience)
        try:
            path = tmp_path / "x.trace/raw/samples.jsonl"
            wait_for(lambda: path.exists() and path.read_bytes().count(b"file_pages"), "samples")
            theirs.dies()
            recorder.send_signal(signal.SIGINT)
            wait_for(lambda: recorder.poll() is not None, "the end of the recorder")
            _, err = recorder.communicate()
            assert recorder.returncode == 0, err
        finally:
            recorder.kill()
            job.kill()
    with Trace(tmp_path / "x.trace") as trace:
        assert trace.manifest["ended_by"] == "signal"
        not_available = trace.manifest["samples"]["not_available"]
        assert not_available["residency"] == "no answer in time"
        causes = "SELECT cause FROM loss WHERE stream = 'samples'"
        told = [("1 reader of samples ended: residency: no answer in time",)]
        assert trace.connection.execute(causes).fetchall() == told
        assert trace.connection.execute("SELECT count(*) FROM samples").fetchone()[0] > 0
