"""The ceiling of a layer's savings covers all measured waits of loads of every kind.

Each load waits for a disk of one arm that logs when it wrote. Whatever the kernel tells of a load:
while it waits, each moment in which the arm was writing is one that a layer could have saved.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import textwrap
from typing import Any

import numpy as np
import pytest

from tests.conftest import do_without
from tests.support.loads import PYTHON
from tests.support.slow_disk import slow_disk
from tracer.analysis.findings.ceiling import ceiling
from tracer.analysis.findings.writes import CEILING, writes
from tracer.analysis.views.disks.wait_times import ANY
from tracer.analysis.views.disks.write_waits import WRITE_WAITS
from tracer.analysis.views.stretches import in_both, joined

pytestmark = [pytest.mark.slow, pytest.mark.quiet]

WRITES = 11
_FIO = ("--rw=randwrite", "--bs=4k", "--direct=1", f"--number_ios={WRITES}", "--size=4m")

# Nothing but what is timed: each line is when a wait began and ended.
_TIMED = """
import ctypes, json, mmap, os, sys, threading, time
page = mmap.mmap(-1, 4096)
waits = []
def timed(wait):
    begun = time.monotonic_ns()
    wait()
    waits.append((begun, time.monotonic_ns()))
"""
_TOLD = "\nprint(json.dumps(waits))"

DIRECT_WRITES = """
fd = os.open(DEVICE, os.O_RDWR | os.O_DIRECT)
for n in range(WRITES):
    timed(lambda: os.pwrite(fd, page, 8192 * n))
"""

DIRECT_READS = """
fd = os.open(DEVICE, os.O_RDONLY | os.O_DIRECT)
for n in range(WRITES):
    timed(lambda: os.preadv(fd, [page], 8192 * n))
"""

BUFFERED_READS = """
fd = os.open(DEVICE, os.O_RDONLY)
for n in range(WRITES):
    timed(lambda: os.pread(fd, 4096, (1 << 20) + (128 << 10) * n))
"""

# The job reads mapped memory: there are only faults.
MAPPED_READS = """
fd = os.open(DEVICE, os.O_RDONLY)
seen = mmap.mmap(fd, 8 << 20, prot=mmap.PROT_READ)
seen.madvise(mmap.MADV_RANDOM)
for n in range(WRITES):
    timed(lambda: seen[(4 << 20) + (128 << 10) * n])
"""

# io_setup, io_submit; the ring of completions is in memory, where no call tells of a look at it.
POLLED = """
libc = ctypes.CDLL(None)
context = ctypes.c_ulong()
assert libc.syscall(206, 64, ctypes.byref(context)) == 0
fd = os.open(DEVICE, os.O_RDWR | os.O_DIRECT)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
block = (ctypes.c_uint64 * 8)()
pointer = (ctypes.c_void_p * 1)(ctypes.addressof(block))
tail = ctypes.c_uint32.from_address(context.value + 12)
def submit(n):
    block[2], block[3], block[4], block[5] = (fd << 32) | 1, address, 4096, 8192 * n
    assert libc.syscall(209, context, 1, pointer) == 1
    while tail.value != n + 1:
        pass
for n in range(WRITES):
    timed(lambda: submit(n))
"""

# It outlives its parent, and the recording.
UNFINISHED = """
fd = os.open(DEVICE, os.O_RDWR)
os.pwrite(fd, page, 0)
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.close(1)
    os.write(tell, b"%d\\n" % time.monotonic_ns())
    os.fsync(fd)
    os._exit(0)
waits.append((int(os.read(ready, 100)), 1 << 62))
time.sleep(0.05)
"""

OTHERS = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
print(flush=True)
while os.getppid() == int(sys.argv[2]):
    os.pwrite(fd, page, 32 << 20)
"""


def load(source: str, device: str) -> str:
    return f"DEVICE, WRITES = {device!r}, {WRITES}\n{_TIMED}{textwrap.dedent(source)}{_TOLD}"


@contextlib.contextmanager
def written_by_others(device: str):
    """Somebody who is not recorded writes to a device without a pause."""
    command = [*PYTHON, "-c", OTHERS, device]
    with subprocess.Popen([*command, str(os.getpid())], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory):
    """One recording of all loads; returns it, and the disk that each load waited for."""
    if not shutil.which("fio"):
        do_without("fio", "TRACER_REQUIRE_KERNEL", "it is not installed")
    folder = tmp_path_factory.mktemp("slow")
    with contextlib.ExitStack() as made:
        own = made.enter_context(slow_disk(folder, "own", 8))
        shared = made.enter_context(slow_disk(folder, "shared", 8))
        last = made.enter_context(slow_disk(folder, "last", 700))
        loads: dict[str, Any] = {
            f"fio {engine}": ["fio", "--name=x", f"--ioengine={engine}", f"--filename={own.device}",
                              *_FIO]
            for engine in ("libaio", "io_uring")
        }  # fmt: skip
        disks = dict.fromkeys(loads, own)
        for name, source, disk in (
            ("direct writes", DIRECT_WRITES, own),
            ("polled", POLLED, own),
            ("direct reads", DIRECT_READS, shared),
            ("buffered reads", BUFFERED_READS, shared),
            ("mapped reads", MAPPED_READS, shared),
            ("unfinished", UNFINISHED, last),
        ):
            loads[name], disks[name] = load(source, disk.device), disk
        with written_by_others(shared.device):
            found = record_loads(loads, "-e", "syscalls,block,dirty,page_faults")
    return found, disks


def pairs(rows: Any) -> Any:
    spans = np.array(list(rows), np.int64).reshape(-1, 2)
    return joined(spans[:, 0], spans[:, 1])


def possible(trace, kind=ANY):
    frame = WRITE_WAITS.frame(trace, f"target IS NULL AND kind = '{kind}'")
    begun = frame["ts"].to_numpy(np.int64)
    return joined(begun, begun + frame["dur_ns"].to_numpy(np.int64))


def length(spans) -> int:
    return int((spans[:, 1] - spans[:, 0]).sum())


def waited(recorded, load):
    """Returns the recorded times in which a load waited while the disk's arm was writing."""
    found, disks = recorded
    clock = found.trace.manifest["clock"]
    if load.startswith("fio"):
        of_load = found.rows(
            "SELECT min(start_ns), max(end_ns) FROM processes"
            f" WHERE pid IN {(0, *found.pids(load))}"
        )
    else:
        of_load = json.loads(found.loads[load].out)
    if load in IN_CALLS:
        # The program's own steps before and after a call are no waits.
        calls = "SELECT ts, ts + dur_ns FROM syscalls WHERE dur_ns > 0 AND pid = ?"
        of_load = in_both(pairs(of_load), pairs(found.rows(calls, found.pid(load))))
    elif load == "mapped reads":
        # Nor are those before a fault.
        faults = "SELECT ts FROM page_faults WHERE pid = ? AND kind = 'major' ORDER BY ts"
        at = [ts for (ts,) in found.rows(faults, found.pid(load))]
        of_load = [
            (next(ts for ts in at if begun <= ts <= ended), ended) for begun, ended in of_load
        ]
    within = in_both(pairs(of_load), pairs([(clock["start_ns"], clock["end_ns"])]))
    return in_both(within, pairs(disks[load].served("w")))


IN_CALLS = ("direct writes", "direct reads", "buffered reads")
WAITING = (*IN_CALLS, "fio libaio", "fio io_uring", "polled", "mapped reads", "unfinished")


@pytest.mark.parametrize("load", WAITING)
def test_each_moment_in_which_a_load_waited_for_the_arm_to_write_is_in_it(recorded, load):
    truth = waited(recorded, load)
    assert length(truth) > 0
    covered = in_both(truth, possible(recorded[0].trace))
    assert length(covered) == length(truth)


def test_report_and_simulate_have_the_same_number(recorded):
    trace = recorded[0].trace
    most = ceiling(trace)
    (told,) = [one for one in writes(trace) if one.topic == CEILING]
    assert told.value == most.percent
    assert most.total_s * 1e9 == pytest.approx(length(possible(trace)))
