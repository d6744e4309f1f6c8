"""The kernel gives the number of a dead process to a new one, which need not be the target's."""

import os
import subprocess
import sys

import pytest

from tests.support.loads import OTHER_THREADS_EXECUTE
from tracer.analysis.views.threads import make_threads
from tracer.analysis.views.writing.flushes import flushes

pytestmark = pytest.mark.slow

STRANGER = """
import ctypes, os, sys
mount, asked, done = sys.argv[1:]
with open(asked) as file:
    number = int(file.read())
# struct clone_args of include/uapi/linux/sched.h, with the number that the child is to have.
wanted = ctypes.c_int(number)
arguments = (ctypes.c_uint64 * 11)()
arguments[4], arguments[8], arguments[9] = 17, ctypes.addressof(wanted), 1
child = ctypes.CDLL(None, use_errno=True).syscall(435, arguments, 88)
assert child in (0, number), os.strerror(ctypes.get_errno())
if child == 0:
    fd = os.open(mount + "/stranger", os.O_CREAT | os.O_RDWR)
    os.pwrite(fd, os.urandom(4096 * 7), 0)
    os.fsync(fd)
    os._exit(0)
os.waitpid(child, 0)
with open(done, "w") as file:
    file.write("done")
"""

TARGET = """
import os
child = os.fork()
if child == 0:
    fd = os.open(mount + "/mine", os.O_CREAT | os.O_RDWR)
    os.pwrite(fd, os.urandom(4096 * 5), 0)
    os.fsync(fd)
    os._exit(0)
os.waitpid(child, 0)
with open(asked, "w") as file:
    file.write(str(child))
with open(done) as file:
    assert file.read() == "done"
"""


def test_a_number_that_is_used_again_is_another_process(record, load, file_system, tmp_path):
    mount, _ = file_system(kind="ext4")
    fifos = [str(tmp_path / name) for name in ("asked", "done")]
    for fifo in fifos:
        os.mkfifo(fifo)
    stranger = subprocess.Popen([sys.executable, "-c", STRANGER, str(mount), *fifos])
    try:
        trace = record(load("mount, asked, done = " + repr((str(mount), *fifos)) + TARGET))
        assert stranger.wait(timeout=60) == 0
    finally:
        stranger.kill()
        stranger.wait()
    flushes(trace)
    # A path of the machine's other file systems may have been written out meanwhile, too.
    both = f"FROM flushes WHERE path IN ('{mount}/mine', '{mount}/stranger')"
    found = trace.rows(
        "SELECT split_part(path, '/', -1), target, whose, dirtiers, certainty, sum(pages)::INT"
        f" {both} GROUP BY ALL ORDER BY ALL"
    )
    target = trace.manifest["targets"][0]["name"]
    assert found == [
        ("mine", target, "target", 1, "exact", 5),
        ("stranger", None, "other", 1, "exact", 7),
    ]
    assert trace.rows(f"SELECT count(DISTINCT dirtier) {both}") == [(1,)]


@pytest.mark.parametrize("backend", ["ftrace", "ebpf"])
def test_a_process_whose_other_thread_executes_a_program_is_one_row(record, load):
    """The kernel ends the first thread and gives its number to the one that calls exec."""
    trace = record(load(OTHER_THREADS_EXECUTE))
    make_threads(trace)
    parent = trace.manifest["targets"][0]["pid"]
    children = f"FROM threads t JOIN processes p USING (tid) WHERE p.ppid = {parent}"
    assert trace.rows(f"SELECT count(*), count(DISTINCT p.tid) {children} AND p.tid = p.pid") == [
        (23, 23)
    ]
    assert trace.rows(
        f"SELECT DISTINCT t.comm, was_there, started IS NULL, ended IS NULL, end_ns > start_ns"
        f" {children} AND p.tid = p.pid"
    ) == [("true", False, False, False, True)]
    assert trace.rows("SELECT * FROM processes WHERE ppid IS NULL AND role = 'child'") == []
