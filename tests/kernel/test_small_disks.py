"""Recordings onto a small disk: they leave room for the tables, and a full one loses no data."""

import contextlib
import itertools
import shutil
import subprocess

import pytest

from tests.conftest import ROOT
from tracer.store.trace import Trace

SAMPLES = ("-e", "processes", "--backend", "perf", "--sample-hz", "100")


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", mount], check=True)
    yield mount
    subprocess.run(["umount", mount], check=True)


@contextlib.contextmanager
def running(command):
    with subprocess.Popen(command) as job:
        try:
            yield job
        finally:
            job.kill()


def copied(trace, tmp_path):
    """A copy of a trace on a disk with room for its tables."""
    return shutil.copytree(trace, tmp_path / "y.trace")


def faults_of(trace):
    return [name for (name,) in trace.rows("SELECT name FROM samples") if name == "pgfault"]


def test_samples_of_a_small_disk_leave_room_for_the_tables(tracer, tmp_path, load, small_disk):
    with running(load("import time\ntime.sleep(600)")) as job:
        ended = tracer("record", "-o", small_disk / "x.trace", *SAMPLES, "-p", job.pid, "-d", "90")
    assert "its disk has little space left" in ended.err
    with Trace(copied(small_disk / "x.trace", tmp_path)) as trace:
        assert trace.manifest["complete"]
        assert trace.manifest["ended_by"] == "space"
        assert len(faults_of(trace)) > 2


def test_a_disk_that_another_program_fills_keeps_the_samples(tracer, tmp_path, load, small_disk):
    source = (
        "import os, time\n"
        "time.sleep(1)\n"
        f"with open('{small_disk}/fill', 'wb', buffering=0) as fill:\n"
        "    while True:\n"
        "        try: fill.write(bytes(4096))\n"
        "        except OSError: time.sleep(0.001)\n"
    )
    with running(load(source)) as job:
        options = (*SAMPLES, "-p", job.pid, "-d", "90")
        ended = tracer("record", "-o", small_disk / "x.trace", *options, status=1)
    assert "is full" in ended.err
    with Trace(copied(small_disk / "x.trace", tmp_path)) as trace:
        assert not trace.manifest["complete"]
        assert len(faults_of(trace)) > 2


def test_a_disk_that_perfs_rings_fill_is_said_without_samples_too(tracer, load, small_disk):
    with running(load("import os\nwhile True:\n    os.getppid()")):
        options = ("-a", "-e", "syscalls", "--backend", "perf", "--sample-hz", "0", "-d", "90")
        ended = tracer("record", "-o", small_disk / "x.trace", *options, status=1)
    assert "is full" in ended.err


def test_a_disk_without_room_for_a_trace_or_a_page_is_no_mistake_of_the_command_line(
    tracer, small_disk
):
    trace = ROOT / "fixtures/lenet.trace"
    tracer("pack", trace, "-o", "whole.tar.zst")
    (small_disk / "fill").write_bytes(bytes(900_000))
    ended = tracer("unpack", "whole.tar.zst", "-o", small_disk / "again.trace", status=1)
    assert f"{small_disk} has no room for them; free space, or unpack elsewhere with -o" in (
        ended.err
    )
    ended = tracer("report", trace, "--html", small_disk / "x.html", status=1)
    assert f"cannot write {small_disk}/x.html: No space left on device" in ended.err
    assert [path.name for path in small_disk.iterdir()] == ["fill"]


@pytest.fixture
def full_disk(tmp_path):
    """A disk with a trace and with room for one more folder."""
    mount = tmp_path / "full"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=100", "none", mount], check=True)
    shutil.copytree(ROOT / "fixtures/lenet.trace", mount / "old.trace")
    with contextlib.suppress(OSError):
        for number in itertools.count():
            (mount / f"fill{number}").touch()
    (mount / "fill0").unlink()
    yield mount
    subprocess.run(["umount", mount], check=True)


@pytest.mark.parametrize("output", [("new.trace",), ("old.trace", "--force")], ids=len)
def test_a_full_disk_keeps_the_old_trace_and_gets_no_folder(tracer, full_disk, output):
    before = sorted(full_disk.rglob("*"))
    ended = tracer("record", "-o", full_disk / output[0], *output[1:], "--", "true", status=1)
    assert f"{full_disk / output[0]} cannot be written: No space left on device; free space" in (
        ended.err
    )
    assert sorted(full_disk.rglob("*")) == before
    Trace(full_disk / "old.trace").close()


def test_force_replaces_the_old_trace_once_the_new_folder_is_there(tracer, full_disk):
    for filling in full_disk.glob("fill*"):
        filling.unlink()
    tracer("record", "-o", full_disk / "old.trace", "--force", "--", "true")
    with Trace(full_disk / "old.trace") as trace:
        assert trace.manifest["targets"][0]["name"] == "true"
    assert [path.name for path in full_disk.iterdir()] == ["old.trace"]
