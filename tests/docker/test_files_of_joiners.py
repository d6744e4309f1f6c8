"""Files that a process has open when it joins a container are listed with their positions.

No process of Docker's joins with files open: what `docker exec` starts opens its own. So processes
that run already are moved into the container's cgroups, one of the host and one of its mounts.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.docker.conftest import WAITING, init_of
from tests.support.dockerd import python
from tests.support.waiting import wait_for
from tracer.store.finalize import DESCRIPTORS, RAW
from tracer.targets.cgroups import hierarchies

PAGE = 4096
PAGES = {"container": 3, "host": 7, "inside": 11}
"""Pages that each program has read of its file."""
READER = f"""
file = os.open("/shared/data of " + name, os.O_RDONLY)
os.read(file, int(sys.argv[2]) * {PAGE})
other = os.dup(file)
say(name + "-has-read")
time.sleep(1000)
"""


@pytest.fixture
def start_in_mounts():
    """Starts a program that waits for a word in the mounts of a container; returns its process."""
    started = []

    def run(container, name, source, *arguments):
        entered = ["nsenter", "--target", str(init_of(container)), "--mount", "--"]
        started.append(subprocess.Popen([*entered, *python(WAITING + source, name, *arguments)]))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def join(container, pid):
    """Moves a process into all cgroups of a container."""
    lines = Path(f"/proc/{init_of(container)}/cgroup").read_text().splitlines()
    paths = {int(number): path for number, _, path in (line.split(":", 2) for line in lines)}
    for hierarchy in hierarchies():
        procs = Path(f"{hierarchy.mount}{paths[hierarchy.number]}", "cgroup.procs")
        procs.write_text(str(pid))


def looked_at(folder, pid):
    """Tells if the recorder has looked at the files of a process."""
    rows = (folder / RAW / DESCRIPTORS).read_text().splitlines()
    return any(row[2] == pid and "/data of " in row[7] for row in map(json.loads, rows))


def test_files_open_before_a_join_are_listed_with_positions(
    start, start_on_host, start_in_mounts, tell, record, shared
):
    for name in PAGES:
        (shared / f"data of {name}").write_bytes(bytes(20 * PAGE))
    container = start("container", READER, PAGES["container"])
    host = start_on_host("host", READER, PAGES["host"])
    tell(None, "container-is-up")
    inside = start_in_mounts(container, "inside", READER, PAGES["inside"])
    tell("go", *(f"{name}-has-read" for name in PAGES))
    recording = record("--container", "container", "-e", "page_cache,opens")
    pids = {"container": init_of(container), "host": host.pid, "inside": inside.pid}
    for name, pid in pids.items():
        if name != "container":
            join(container, pid)
        wait_for(lambda pid=pid: looked_at(recording.folder, pid), f"the look at {name}")
    with recording.stop() as trace:
        rows = trace.rows(
            "SELECT pid, path, position, count(*), count(DISTINCT description) FROM descriptors "
            "WHERE contains(path, '/data of ') GROUP BY ALL ORDER BY min(ts)"
        )
        places = {"container": "/shared", "host": str(shared), "inside": "/shared"}
        assert rows == [
            (pids[name], f"{places[name]}/data of {name}", PAGES[name] * PAGE, 2, 1)
            for name in PAGES
        ]
        targets = trace.rows(
            "SELECT pid, target FROM processes WHERE pid = tid AND target IS NOT NULL "
            f"AND pid IN {tuple(pids.values())} ORDER BY pid"
        )
        assert targets == [(pid, "container") for pid in sorted(pids.values())]
