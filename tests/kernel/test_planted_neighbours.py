"""Waits of an fsync for the data of two neighbours, who belong to no target.

ext4 writes the data of files in a commit before the commit, whosever they are. The disk's own log
tells how long it wrote each neighbour's blocks. Meanwhile they write to another disk, too.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from tests.support.planted import CHARGED, MISTAKEN, MS, during, load, windows
from tests.support.slow_disk import slow_disk, spent
from tests.support.slow_ext4 import BLOCK, QUIET, REQUEST_MS, blocks_of, mounted
from tracer.analysis.report.waits import waits_table
from tracer.analysis.views.waiting.critical_path import critical_path

pytestmark = pytest.mark.quiet

SIZES = {"neighbour": (4, 9, 23), "tenant": (17, 5, 0)}
"""Files that each neighbour lengthens before each step; each is one request."""
OPTIONS = f"{QUIET},nodelalloc,commit=600"
STEPS_OF_ALL = list(zip(*SIZES.values(), strict=True))

NEIGHBOUR = f"""
import os, sys, threading
folder, elsewhere, ask, answer, *names = sys.argv[1:]
files = [os.open(f"{{folder}}/{{name}}", os.O_RDWR) for name in names]

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
pipes = [(open(ask, "w", buffering=1), open(answer))
         for ask, answer in zip(sys.argv[2::2], sys.argv[3::2])]
asked = iter([*((counts, 2 * n + 2) for n, counts in enumerate({STEPS_OF_ALL})),
              ([0] * len(pipes), 0)])

def prepare():
    counts, block = next(asked)
    for (ask, answer), count in zip(pipes, counts):
        print(count, block, file=ask)
        answer.readline()
    os.pwrite(own, os.urandom({BLOCK}), os.fstat(own).st_size)

steps([*(lambda: os.fsync(own) for _ in {STEPS_OF_ALL}), nothing], prepare)
""")


def files_of(neighbour: str) -> list[str]:
    return [f"{neighbour}{n}" for n in range(max(SIZES[neighbour]))]


@pytest.fixture(scope="module")
def beside_neighbours(record_loads, tmp_path_factory):
    """The recording, the requests of the journal's disk, and each neighbour's blocks."""
    folder = tmp_path_factory.mktemp("neighbours")
    mount = folder / "mount"
    (folder / "steps.py").write_text(STEPS)
    files = dict.fromkeys(("own", *(file for each in SIZES for file in files_of(each))), b"x")
    with slow_disk(folder, "d", REQUEST_MS) as disk:
        pipes = []
        with (
            mounted(disk, mount, files, OPTIONS, "-b", BLOCK),
            contextlib.ExitStack() as running,
        ):
            for name in SIZES:
                python, ask, answer = (folder / f"{name}{end}" for end in ("", ".ask", ".answer"))
                python.symlink_to(sys.executable)  # its name is that of the process
                for pipe in (ask, answer):
                    os.mkfifo(pipe)
                pipes += [ask, answer]
                elsewhere = folder / f"{name}.elsewhere"
                told = [mount, elsewhere, ask, answer, *files_of(name)]
                neighbour = subprocess.Popen([python, "-S", "-E", "-c", NEIGHBOUR, *told])
                running.callback(neighbour.wait)
                running.callback(neighbour.kill)
            command = ["/usr/bin/python3", "-S", "-E", folder / "steps.py", mount, *pipes]
            found = record_loads({"steps": command}, "-e", "default,sched")
        blocks = {
            name: set().union(*(blocks_of(disk, f"/{file}") for file in files_of(name)))
            for name in SIZES
        }
        critical_path(found.trace)
        yield found, disk.requests(), blocks


def written_for(requests, blocks, window) -> tuple[int, int]:
    """The least and the most time (ns) within a window that writing these blocks took."""

    def part_of(offset, kind):
        return "theirs" if kind != "f" and offset // BLOCK in blocks else "others"

    return spent(requests, window, part_of).get("theirs", (0, 0))


@pytest.mark.parametrize("neighbour", SIZES)
def test_each_neighbour_is_charged(beside_neighbours, neighbour):
    found, requests, blocks = beside_neighbours
    *planted, control = windows(found, "steps")
    theirs = f"kind = 'sync' AND for_comm = '{neighbour}'"
    for window, count in zip(planted, SIZES[neighbour], strict=True):
        least, most = written_for(requests, blocks[neighbour], window)
        assert least >= 0.5 * count * REQUEST_MS * MS
        told = during(found, "steps", window, theirs)
        near = (1 - CHARGED) * (window[1] - window[0])
        assert least - near <= told <= most + near
    length = control[1] - control[0]
    assert during(found, "steps", control, theirs) <= MISTAKEN * length


def test_blame_names_each_neighbour(beside_neighbours):
    found, requests, blocks = beside_neighbours
    table = waits_table(found.trace)
    for name in SIZES:
        times = [written_for(requests, blocks[name], one) for one in windows(found, "steps")]
        least, most = map(sum, zip(*times, strict=True))
        [charged] = table[(table["kind"] == "sync") & (table["blamed"] == name)]["path_s"]
        assert CHARGED * least <= charged * 1e9 <= most / CHARGED


def test_own_data_is_not_charged_to_others(beside_neighbours):
    """Each step's own page is written before the call waits for the journal."""
    found, _, _ = beside_neighbours
    others = "SELECT count(*) FROM waits WHERE for_pid IS NOT NULL AND detail != 'data'"
    assert found.one(others) == 0
