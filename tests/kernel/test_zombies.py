"""A process that has ended, and that nobody has waited for, does not live in a recording."""

import os
import subprocess
import sys

import pytest

from tests.support.waiting import wait_for
from tracer.probes.proc import read_stat
from tracer.session import environment

WITHOUT_FIRST = """
import ctypes, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), None)).start()
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
        wait_for(ended(process.pid), "the end of its first thread")
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
