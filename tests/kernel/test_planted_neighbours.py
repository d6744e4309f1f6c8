"""Waits of an fsync for the data of a neighbour, who belongs to no target.

ext4 writes the data of files in a commit before the commit, whosever they are. The disk's own log
tells how long it wrote the neighbour's blocks. Meanwhile the neighbour writes to another disk, too.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from tests.support.planted import CHARGED, MISTAKEN, MS, during, load, windows
from tests.support.slow_disk import slow_disk
from tests.support.slow_ext4 import BLOCK, REQUEST_MS, blocks_of, run
from tracer.analysis.report.waits import waits_table
from tracer.analysis.views.critical_path import critical_path

SIZES = (4, 9, 23)
"""Files that the neighbour lengthens before each step; each is one request."""

NEIGHBOUR = f"""
import os, sys, threading
folder, elsewhere, ask, answer = sys.argv[1:]
files = [os.open(f"{{folder}}/other{{n}}", os.O_RDWR) for n in range({max(SIZES)})]

def write_elsewhere():
    file = os.open(elsewhere, os.O_CREAT | os.O_RDWR)
    while True:
        os.pwrite(file, bytes(4 << 20), 0)
        os.fsync(file)

threading.Thread(target=write_elsewhere, daemon=True).start()
with open(ask) as asked, open(answer, "w", buffering=1) as answered:
    for line in asked:
        count, block = map(int, line.split())
        for file in files[:count]: os.pwrite(file, os.urandom({BLOCK}), block * {BLOCK})
        print("written", file=answered)
"""

STEPS = load(f"""
own = os.open(sys.argv[1] + "/own", os.O_RDWR)
ask, answer = open(sys.argv[2], "w", buffering=1), open(sys.argv[3])
asked = iter([*((count, 2 * n + 2) for n, count in enumerate({SIZES})), (0, 0)])

def prepare():
    print(*next(asked), file=ask)
    answer.readline()
    os.pwrite(own, os.urandom({BLOCK}), os.fstat(own).st_size)

steps([*(lambda: os.fsync(own) for _ in {SIZES}), nothing], prepare)
""")


@pytest.fixture(scope="module")
def beside_a_neighbour(record_loads, tmp_path_factory):
    """The recording, the requests of the journal's disk, and the neighbour's blocks."""
    folder = tmp_path_factory.mktemp("neighbours")
    mount, python = folder / "mount", folder / "neighbour"
    mount.mkdir()
    python.symlink_to(sys.executable)  # its name is that of the process
    (folder / "steps.py").write_text(STEPS)
    pipes = [folder / "ask", folder / "answer"]
    for pipe in pipes:
        os.mkfifo(pipe)
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(slow_disk(folder, "d", REQUEST_MS))
        run("mkfs.ext4", "-q", "-b", BLOCK, "-E", "lazy_itable_init=0,lazy_journal_init=0",
            disk.device)  # fmt: skip
        options = "nodelalloc,no_prefetch_block_bitmaps,commit=600"
        run("mount", "-o", options, disk.device, mount)
        stack.callback(lambda: os.path.ismount(mount) and run("umount", mount))
        for name in ("own", *(f"other{n}" for n in range(max(SIZES)))):
            (mount / name).write_bytes(b"x")
        run("sync", "-f", mount)
        neighbour = subprocess.Popen(
            [python, "-S", "-E", "-c", NEIGHBOUR, mount, folder / "elsewhere", *pipes]
        )
        try:
            command = ["/usr/bin/python3", "-S", "-E", folder / "steps.py", mount, *pipes]
            found = record_loads({"steps": command}, "-e", "default,sched")
        finally:
            neighbour.kill()
            neighbour.wait()
        run("umount", mount)
        blocks = set().union(*(blocks_of(disk, f"/other{n}") for n in range(max(SIZES))))
        critical_path(found.trace)
        yield found, disk.requests(), blocks


def written_for(requests, blocks, window) -> int:
    """The time (ns) within a window that the disk spent on these blocks."""
    return sum(
        max(0, min(end, window[1]) - max(begin, window[0]))
        for begin, end, offset, _, kind in requests
        if kind != "f" and offset // BLOCK in blocks
    )


def test_the_neighbour_is_charged(beside_a_neighbour):
    found, requests, blocks = beside_a_neighbour
    *planted, control = windows(found, "steps")
    theirs = "kind = 'sync' AND for_comm = 'neighbour'"
    for window, count in zip(planted, SIZES, strict=True):
        truth = written_for(requests, blocks, window)
        assert truth >= 0.5 * count * REQUEST_MS * MS
        told = during(found, "steps", window, theirs)
        assert told == pytest.approx(truth, abs=(1 - CHARGED) * (window[1] - window[0]))
    length = control[1] - control[0]
    assert during(found, "steps", control, theirs) <= MISTAKEN * length


def test_blame_names_the_neighbour(beside_a_neighbour):
    found, requests, blocks = beside_a_neighbour
    truth = sum(written_for(requests, blocks, one) for one in windows(found, "steps"))
    table = waits_table(found.trace)
    [charged] = table[(table["kind"] == "sync") & (table["blamed"] == "neighbour")]["path_s"]
    assert charged == pytest.approx(truth / 1e9, rel=0.1)


def test_own_data_is_not_charged_to_others(beside_a_neighbour):
    """Each step's own page is written before the call waits for the journal."""
    found, _, _ = beside_a_neighbour
    others = "SELECT count(*) FROM waits WHERE for_pid IS NOT NULL AND detail != 'data'"
    assert found.one(others) == 0
