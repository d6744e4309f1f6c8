"""Files that a process has open when it joins a recorded cgroup: its reads go on from there.

All files are in the page cache, so no page that comes in tells which file a call reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cgroups import mounted, own_cgroup
from tests.support.file_systems import FileSystems
from tests.support.older_kernels import without_accesses
from tests.support.waiting import wait_for, wait_for_rounds
from tests.support.warm import Tracer
from tracer.analysis.views.reading.inferred_accesses import EVENTS
from tracer.analysis.views.reading.reads import reads
from tracer.store.finalize import DESCRIPTORS, RAW
from tracer.store.trace import Trace

PAGE = 4096
LOAD = """
import json, os, sys, time

mount, top, folder = sys.argv[1:]
root = os.path.dirname(top)

def opened(name):
    return os.open(f"{{mount}}/{{name}}", os.O_RDONLY)

def read(fd, pages):
    return len(os.read(fd, pages * {page}))

def say(word):
    with open(f"{{folder}}/{{word}}.new", "w") as file: file.write(str(os.getpid()))
    os.rename(f"{{folder}}/{{word}}.new", f"{{folder}}/{{word}}")

def wait(word):
    for _ in range(12000):
        if os.path.exists(f"{{folder}}/{{word}}"): return
        time.sleep(0.005)
    sys.exit(f"nobody said {{word}}")

def enter(cgroup):
    with open(cgroup + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))

shared = opened("shared")
read(shared, 9)
there, back = os.pipe(), os.pipe()
if os.fork() == 0:  # it joins later
    os.read(there[0], 1)
    read(shared, 5)
    one = opened("read on")
    read(one, 50)
    enter(top)
    say("joined")
    wait("seen joining")
    while read(one, 7): pass
    for _ in range(4):
        read(shared, 5)
        os.write(back[1], b"x")
        os.read(there[0], 1)
    if os.fork() == 0:
        read(shared, 2)
        os._exit(0)
    os.wait()
    left = opened("left")
    read(left, 4)
    enter(root)
    say("left")
    wait("seen leaving")
    read(left, 6)
    enter(top)
    say("returned")
    wait("seen returning")
    read(left, 5)
    say("done")
    time.sleep(99)
enter(top)
say("in")
wait("go")
read(shared, 3)
os.write(there[1], b"x")
for _ in range(4):
    os.read(back[0], 1)
    read(shared, 3)
    os.write(there[1], b"x")
time.sleep(99)
"""
SIZES = {"read on": 211, "shared": 131, "left": 31}
"""Pages of each file."""


@dataclass
class Joined:
    """The recording as an older kernel would have made it."""

    trace: Trace
    mount: Path
    first: int
    """The process that is in the cgroup from the start."""
    joiner: int


def recorded(folder, cgroup, said):
    """Records the cgroup while the load runs; returns the process that joins."""

    def looks_at(pid):
        rows = (folder / "x.trace" / RAW / DESCRIPTORS).read_text().splitlines()
        return sum(row[2] == pid and row[7].endswith("/shared") for row in map(json.loads, rows))

    options = ("-e", "default,page_cache,opens", "-o", "x.trace", "--cgroup", cgroup)
    with Tracer("record", *options, cwd=folder) as recorder:
        try:
            assert "Tracing" in recorder.stderr.readline()
            (folder / "go").touch()
            joiner = said("joined")
            wait_for(lambda: looks_at(joiner) == 1, "the look at the one that joined")
            (folder / "seen joining").touch()
            said("left")
            wait_for_rounds(recorder.pid, 5)  # it looks four times a second
            (folder / "seen leaving").touch()
            said("returned")
            wait_for(lambda: looks_at(joiner) == 2, "the look at the one that returned")
            (folder / "seen returning").touch()
            said("done")
            recorder.terminate()
            _, errors = recorder.communicate()
            assert recorder.returncode == 0, errors
        finally:
            recorder.kill()
    return joiner


@pytest.fixture(scope="module", params=mounted(), ids=lambda h: h.controllers or "unified")
def joined(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("joiners")

    def said(word):
        wait_for((folder / word).exists, word)
        return int((folder / word).read_text())

    with FileSystems(folder) as make, own_cgroup(request.param) as cgroup:
        mount, _ = make(kind="ext4")
        for name, pages in SIZES.items():
            Path(mount, name).write_bytes(bytes(pages * PAGE))
        command = [sys._base_executable, "-S", "-E", "-c", LOAD.format(page=PAGE)]
        with subprocess.Popen([*command, mount, cgroup, folder]) as load:
            try:
                first = said("in")
                joiner = recorded(folder, cgroup, said)
            finally:
                load.kill()
    with Trace(without_accesses(folder / "x.trace", folder / "older.trace")) as trace:
        reads(trace)
        yield Joined(trace, mount, first, joiner)


def places(joined, name):
    """The reads of a file in order of time: (process, first page, pages)."""
    return joined.trace.rows(
        f'SELECT pid, "index"::BIGINT, pages FROM {EVENTS} SEMI JOIN '
        f"(SELECT dev, ino FROM files WHERE path = '{joined.mount}/{name}') USING (dev, ino) "
        "WHERE event = 'access' ORDER BY ts"
    )


def test_the_files_of_a_process_that_joins_are_listed_with_those_that_share_a_position(joined):
    first, joiner = joined.first, joined.joiner
    rows = joined.trace.rows(
        "SELECT pid, parse_filename(path), position, dense_rank() OVER (ORDER BY description) "
        f"FROM descriptors WHERE starts_with(path, '{joined.mount}/') ORDER BY ts"
    )
    assert rows[:4] == [
        (first, "shared", 9 * PAGE, 1),
        (joiner, "shared", 17 * PAGE, 2),
        (joiner, "read on", 50 * PAGE, 3),
        (first, "shared", 17 * PAGE, 2),
    ]


def test_a_process_that_joins_reads_on_from_its_position(joined):
    rest = SIZES["read on"] - 50
    assert places(joined, "read on") == [(joined.joiner, at, 7) for at in range(50, 50 + rest, 7)]


def test_a_position_is_shared_with_the_process_that_was_there(joined):
    """It was moved by five pages before the process joined."""
    first, joiner = joined.first, joined.joiner
    found = places(joined, "shared")
    expected = [(first, 9, 3)]
    for at in range(17, 17 + 4 * 8, 8):
        expected += [(joiner, at, 5), (first, at + 5, 3)]
    assert found[:-1] == expected
    child, *place = found[-1]
    assert child not in (first, joiner)
    assert place == [49, 2]


def test_a_process_that_returns_reads_on_from_where_it_was_outside(joined):
    joiner = joined.joiner
    assert places(joined, "left") == [(joiner, 0, 4), (joiner, 10, 5)]


def test_the_place_of_no_read_is_unknown(joined):
    own = (joined.first, joined.joiner)
    unknown = f"SELECT coalesce(sum(unplaced), 0)::BIGINT FROM page_uses WHERE pid IN {own}"
    assert joined.trace.rows(unknown) == [(0,)]
