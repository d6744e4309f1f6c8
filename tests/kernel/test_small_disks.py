"""Recordings onto a small disk: they leave room for the tables, and a full one loses no data."""

import subprocess

import pytest

from tracer.store.trace import Trace

SAMPLES = ("-e", "processes", "--backend", "perf", "--sample-hz", "100")


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", mount], check=True)
    yield mount
    subprocess.run(["umount", mount], check=True)


def test_samples_of_a_small_disk_leave_room_for_the_tables(tracer, tmp_path, load, small_disk):
    job = subprocess.Popen(load("import time\ntime.sleep(600)"))
    try:
        ended = tracer("record", "-o", small_disk / "x.trace", *SAMPLES, "-p", job.pid, "-d", "90")
        assert "its disk has little space left" in ended.err
        subprocess.run(["cp", "-r", small_disk / "x.trace", tmp_path / "y.trace"], check=True)
    finally:
        job.kill()
        job.wait()
    with Trace(tmp_path / "y.trace") as trace:
        assert trace.manifest["complete"]
        assert trace.manifest["ended_by"] == "space"
        assert sum(row[0] == "pgfault" for row in trace.rows("SELECT name FROM samples")) > 2


def test_a_disk_that_another_program_fills_keeps_the_samples(tracer, tmp_path, load, small_disk):
    source = (
        "import os, time\n"
        "time.sleep(1)\n"
        f"with open('{small_disk}/fill', 'wb', buffering=0) as fill:\n"
        "    while True:\n"
        "        try: fill.write(bytes(4096))\n"
        "        except OSError: time.sleep(0.001)\n"
    )
    job = subprocess.Popen(load(source))
    try:
        options = (*SAMPLES, "-p", job.pid, "-d", "90")
        ended = tracer("record", "-o", small_disk / "x.trace", *options, status=1)
        assert "is full" in ended.err
        subprocess.run(["cp", "-r", small_disk / "x.trace", tmp_path / "y.trace"], check=True)
    finally:
        job.kill()
        job.wait()
    with Trace(tmp_path / "y.trace") as trace:
        assert not trace.manifest["complete"]
        assert sum(row[0] == "pgfault" for row in trace.rows("SELECT name FROM samples")) > 2


def test_a_disk_that_perfs_rings_fill_is_said_without_samples_too(tracer, load, small_disk):
    job = subprocess.Popen(load("import os\nwhile True:\n    os.getppid()"))
    try:
        options = ("-a", "-e", "syscalls", "--backend", "perf", "--sample-hz", "0", "-d", "90")
        ended = tracer("record", "-o", small_disk / "x.trace", *options, status=1)
    finally:
        job.kill()
        job.wait()
    assert "is full" in ended.err
