"""Files that a process has open when its recording begins: inferred reads begin at their positions.

All files are in the page cache, so no page that comes in tells which file a call reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.file_systems import FileSystems
from tests.support.older_kernels import without_accesses
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.analysis.views.reading.reads import reads
from tracer.store.trace import Trace

PAGE = 4096
LOAD = """
import json, os, sys, time

mount, ready, go = sys.argv[1:]
told = {{}}

def opened(name, flags=os.O_RDONLY):
    return os.open(f"{{mount}}/{{name}}", flags)

def read(name, fd, pages):
    got = len(os.read(fd, pages * {page}))
    told[name] = told.get(name, 0) + got // {page}
    return got

one = opened("read on")
os.read(one, 50 * {page})
shared = opened("shared")
other = os.dup(shared)
os.read(other, 9 * {page})
again = opened("shared")
appended = opened("appended", os.O_RDWR | os.O_APPEND)
gone = opened("gone")
os.unlink(f"{{mount}}/gone")
there, back = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    while os.read(there[0], 1) == b"x":
        os.read(shared, 5 * {page})
        os.write(back[1], b"x")
    os._exit(0)
open(ready, "w").close()
while not os.path.exists(go): time.sleep(0.01)

while read("read on", one, 7): pass
for _ in range(4):
    read("shared", other, 3)
    os.write(there[1], b"x")
    os.read(back[0], 1)
    told["shared"] += 5
read("shared", again, 2)
read("appended", appended, 3)
os.write(appended, bytes({page}))
read("gone", gone, 11)
os.write(there[1], b"e")
os.wait()
json.dump({{"child": child, "fds": [one, shared, other, again, appended, gone], "pages": told}},
          open(ready, "w"))
"""
SIZES = {"read on": 211, "shared": 131, "appended": 17, "gone": 61}
"""Pages of each file."""


@dataclass
class Attached:
    """The recording as an older kernel would have made it, and the load's own account."""

    trace: Trace
    mount: Path
    dev: str
    pid: int
    told: dict[str, Any]


@pytest.fixture(scope="module")
def attached(tmp_path_factory):
    folder = tmp_path_factory.mktemp("open_before")
    ready, go = folder / "ready", folder / "go"
    with FileSystems(folder) as make:
        mount, dev = make(kind="ext4")
        for name, pages in SIZES.items():
            Path(mount, name).write_bytes(bytes(pages * PAGE))
        source = LOAD.format(page=PAGE)
        command = [sys.executable, "-S", "-c", source, mount, ready, go]
        with subprocess.Popen(list(map(str, command))) as load:
            wait_for(ready.exists, "the load")
            options = ("-e", "default,page_cache,opens", "-o", "x.trace", "-p", load.pid)
            with Tracer("record", *options, cwd=folder) as recorder:
                assert "Tracing" in recorder.stderr.readline()
                go.touch()
                _, errors = recorder.communicate()
                assert recorder.returncode == 0, errors
        pid = load.pid
    with Trace(without_accesses(folder / "x.trace", folder / "older.trace")) as trace:
        reads(trace)
        yield Attached(trace, mount, dev, pid, json.loads(ready.read_text()))


def test_descriptors_are_listed_with_positions_and_those_that_share_one(attached):
    one, shared, other, again, appended, gone = attached.told["fds"]
    own = [(one, 50), (shared, 9), (other, 9), (again, 0), (appended, 0), (gone, 0)]
    rows = attached.trace.rows(
        "SELECT pid, fd, position FROM descriptors "
        f"WHERE starts_with(path, '{attached.mount}/') ORDER BY pid, fd"
    )
    both = (attached.pid, attached.told["child"])
    assert rows == [(pid, fd, pages * PAGE) for pid in sorted(both) for fd, pages in own]
    sharing = attached.trace.rows(
        "SELECT description, count(*) FROM descriptors "
        f"WHERE fd IN ({shared}, {other}) GROUP BY description"
    )
    assert [count for _, count in sharing] == [4]


@pytest.mark.parametrize("name", ["read on", "shared", "appended"])
def test_pages_are_those_that_the_job_reads_on(attached, name):
    query = "SELECT sum(accessed)::BIGINT FROM reads WHERE dev = ? AND path LIKE ?"
    found = attached.trace.connection.execute(query, [attached.dev, f"%/{name}"]).fetchone()
    assert found == (attached.told["pages"][name],)


def test_bytes_of_a_removed_file_are_those_whose_file_is_not_known(attached):
    own = (attached.pid, attached.told["child"])
    unknown = f"SELECT sum(unplaced)::BIGINT FROM page_uses WHERE pid IN {own}"
    assert attached.trace.rows(unknown) == [(attached.told["pages"]["gone"] * PAGE,)]
