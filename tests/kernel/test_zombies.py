"""A process that has ended, and that nobody has waited for, does not live in a recording."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.recorder import target_bytes
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.probes.kernel import process_alive, process_start_time
from tracer.probes.proc import read_stat
from tracer.session import environment
from tracer.store.trace import Trace

CALLS = 1009
WITHOUT_FIRST = f"""
import ctypes, os, sys, threading
def run():
    sys.stdin.readline()
    for _ in range({CALLS}): os.times()
    sys.stdin.read()
threading.Thread(target=run).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def ended(pid):
    return lambda: read_stat(pid).ended


@pytest.fixture
def zombie():
    """The pid of a process that has ended."""
    pid = os.posix_spawnp("true", ["true"], os.environ)
    wait_for(ended(pid), "the end of a process")
    yield pid
    os.waitpid(pid, 0)


@pytest.fixture
def without_first():
    """A process whose first thread has ended and whose second one waits."""
    with subprocess.Popen([sys.executable, "-c", WITHOUT_FIRST], stdin=subprocess.PIPE) as process:
        first = Path(f"/proc/{process.pid}/task/{process.pid}/stat")
        wait_for(lambda: ") Z " in first.read_text(), "the end of its first thread")
        yield process
        process.kill()


def test_processes_have_no_row_of_a_zombie(record, load, zombie, without_first):
    trace = record(load("import os\nos.getppid()"), "-e", "syscalls")
    query = f"SELECT count(*) FROM processes WHERE pid = {zombie}"
    assert trace.rows(query) == [(0,)]
    query = "SELECT count(*), count(start_ns), count(end_ns) FROM processes WHERE pid = {}"
    assert trace.rows(query.format(without_first.pid)) == [(2, 0, 0)]
    assert trace.rows(query.format(os.getpid()))[0][0] > 0


def test_a_process_that_ends_between_the_first_event_and_the_list_is_listed(zombie):
    before = environment.ended()
    later = os.posix_spawnp("true", ["true"], os.environ)
    try:
        wait_for(ended(later), "the end of a process")
        listed = {tid for tid, *_ in environment.threads(before)}
    finally:
        os.waitpid(later, 0)
    assert zombie in before
    assert zombie not in listed
    assert later in listed


def test_a_process_is_recorded_until_its_last_thread_ends(without_first, tmp_path):
    started = process_start_time(without_first.pid)
    assert process_alive(without_first.pid, started)
    recorder = Tracer("record", "-p", without_first.pid, "-e", "syscalls", cwd=tmp_path)
    first = recorder.stderr.readline()
    assert first.startswith("Tracing "), first + recorder.stderr.read()
    without_first.stdin.write(b"\n")
    without_first.stdin.flush()
    (folder,) = tmp_path.glob("*.trace")
    wait_for(lambda: target_bytes(folder) > 0, "the drain")
    without_first.stdin.close()
    _, err = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, err
    without_first.wait()
    assert not process_alive(without_first.pid, started)
    with Trace(folder) as trace:
        assert trace.manifest["ended_by"] == "target"
        query = "SELECT count(*) FROM syscalls WHERE name = 'times' AND pid = ?"
        counted = trace.connection.execute(query, [without_first.pid]).fetchone()
    assert counted == (CALLS,)
