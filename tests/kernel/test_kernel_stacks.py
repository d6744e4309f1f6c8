"""Kernel stacks of sleeps whose causes are known, beside the stacks that the kernel itself tells.

A witness reads /proc/PID/stack while the load sleeps. The kernel leaves out functions of the
scheduler there, which are innermost. `perf record` runs beside the recording, and has the stack of
each switch.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.slow_disk import slow_disk
from tests.support.slow_ext4 import QUIET, mounted
from tracer.analysis.views.waiting.waits import waits

pytestmark = pytest.mark.quiet

TIMES = 23
REQUEST_MS = 20
FAULTS = 12
"""Enough faults for the witness to see one on a busy machine."""
LOAD = f"""
import json, mmap, os, sys, threading, time

own, told = os.getpid(), os.pipe()

def state():
    with open(f"/proc/{{own}}/stat") as file: return file.read().rpartition(")")[2].split()[0]

def frames():
    with open(f"/proc/{{own}}/stack") as file: return file.read()

witness = os.fork()
if witness == 0:
    os.close(told[1])
    os.set_blocking(told[0], False)
    seen = []
    while True:
        try:
            if os.read(told[0], 1) == b"": break
        except BlockingIOError: pass
        begun = time.monotonic_ns()
        if state() in "SD" and (first := frames()) == frames() and state() in "SD":
            seen.append((begun, time.monotonic_ns(), first))
        time.sleep(0.002)
    json.dump(seen, open(sys.argv[2], "w"))
    os._exit(0)
os.close(told[0])

for _ in range({TIMES}): time.sleep(0.003)

def asleep(pid):
    while open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.0005)

there, back = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(told[1])
    for _ in range({TIMES}):
        os.read(there[0], 1)
        asleep(os.getppid())
        time.sleep(0.003)
        os.write(back[1], b"x")
    os._exit(0)
for _ in range({TIMES}):
    os.write(there[1], b"x")
    os.read(back[0], 1)

lock, held, wanted = threading.Lock(), threading.Event(), os.pipe()

def hold():
    with lock:
        held.set()
        os.read(wanted[0], 1)
        time.sleep(0.1)

holder = threading.Thread(target=hold)
holder.start()
held.wait()
os.write(wanted[1], b"x")
with lock: pass
holder.join()

file = os.open(sys.argv[1] + "/file", os.O_RDWR)
os.pwrite(file, b"x" * 8192, 4096)
os.fsync(file)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
with mmap.mmap(file, 0) as memory:
    memory.madvise(mmap.MADV_RANDOM)
    for page in range({FAULTS}): memory[page * 4 * mmap.PAGESIZE]

os.close(told[1])
os.waitpid(witness, 0)
os.wait()
"""
CAUSES = {
    "clock_nanosleep": "nanosleep",
    "read": "pipe_read",
    "futex": "futex_wait",
    "fsync": "ext4_sync_file",
    None: "filemap_fault",
}
"""Functions in which the load sleeps, by system call; None: a page fault."""


BEGUN = "echo begun; read line"


@contextlib.contextmanager
def recorded_by_perf(data: Path):
    """`perf record` of all switches, with stacks and the times of our recorder's clock."""
    options = ("-a", "-g", "-m", "8M", "-k", "CLOCK_MONOTONIC", "-e", "sched:sched_switch")
    command = ["perf", "record", "-q", *options, "-o", data, "--", "sh", "-c", BEGUN]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as perf:
        assert perf.stdout.readline() == "begun\n"
        yield
        perf.communicate("end\n")
    assert perf.returncode == 0


def switches_of(data: Path, tid: int) -> list[tuple[str, list[str]]]:
    """State and kernel functions, from the root, of each switch of a thread off its CPU."""
    fields = "comm,tid,time,event,ip,sym,trace"
    command = ["perf", "script", "-i", data, "--tid", str(tid), "--show-lost-events", "-F", fields]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "LOST" not in text
    found = []
    for entry in text.strip().split("\n\n"):
        head, *frames = entry.splitlines()
        state = re.search(r" prev_state=(\S+) ==> ", head)
        assert state
        told = [frame.split(maxsplit=1) for frame in frames]
        kernel = [name.strip() for address, name in told if int(address, 16) >> 63]
        found.append((state[1], kernel[::-1]))
    return found


@pytest.fixture(scope="module", params=("ftrace", "ebpf", "perf"))
def slept(request, record_loads, tmp_path_factory):
    """The load by a backend, on a slow disk; what the witness saw, and perf's data."""
    folder = tmp_path_factory.mktemp("stacks")
    mount, seen = folder / "mount", folder / "seen.json"
    (folder / "load.py").write_text(LOAD)
    command = ["/usr/bin/python3", "-S", "-E", folder / "load.py", mount, seen]
    with (
        slow_disk(folder, "d", REQUEST_MS) as disk,
        mounted(disk, mount, {"file": bytes(FAULTS << 14)}, QUIET),
        recorded_by_perf(folder / "perf.data"),
    ):
        options = ("--stacks", "-e", "default")
        found = record_loads({"load": command}, *options, backend=request.param)
    waits(found.trace)
    yield found, json.loads(seen.read_text()), folder / "perf.data"


def test_each_sleep_has_a_stack_and_nothing_else_has(slept):
    found, _, _ = slept
    counts = found.rows(
        "SELECT state SIMILAR TO '[SDTtPI].*' AS sleeps, count(*), count(kernel_stack) "
        "FROM off_cpu WHERE state IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    (_, others, of_others), (_, sleeps, of_sleeps) = counts
    assert (of_others, of_sleeps) == (0, sleeps)
    assert others
    assert sleeps > 2 * TIMES


@pytest.mark.parametrize("call", ["clock_nanosleep", "read"])
def test_every_planted_sleep_is_in_its_function(slept, call):
    found, _, _ = slept
    sleeps = found.one(
        "SELECT count(*) FROM waits WHERE tid = ? AND call = ? AND kind != 'cpu' "
        f"AND contains(kernel_stack, '{CAUSES[call]}')",
        found.pid("load"),
        call,
    )
    assert sleeps == TIMES


def test_the_longest_wait_of_each_kind_is_in_its_function(slept):
    found, _, _ = slept
    longest = dict(
        found.rows(
            "SELECT call, arg_max(kernel_stack, dur_ns) FROM waits WHERE tid = ? AND dur_ns > 0 "
            "AND (call IS NOT NULL OR kind = 'fault') AND kind != 'cpu' GROUP BY call",
            found.pid("load"),
        )
    )
    for call, function in CAUSES.items():
        assert function in longest[call], call


def addresses() -> dict[str, set[str]]:
    """The addresses of functions by name: a function may have several names."""
    found = defaultdict(set)
    for line in Path("/proc/kallsyms").read_text().splitlines():
        address, _, name, *_ = line.split()
        found[name].add(address)
    return found


def test_the_kernel_tells_the_same_stacks(slept):
    found, seen, _ = slept
    sleeps = found.rows(
        "SELECT ts, ts + dur_ns, kernel_stack FROM off_cpu WHERE tid = ? AND dur_ns > 0",
        found.pid("load"),
    )
    known = addresses()
    compared = set()
    for begun, ended, text in seen:
        told = [line.split()[1].partition("+")[0] for line in text.splitlines()][::-1]
        for since, until, stack in sleeps:
            if since <= begun and ended <= until:
                ours = stack.split(";")[: len(told)]
                same = [a == b or known[a] & known[b] for a, b in zip(ours, told, strict=True)]
                assert all(same), (ours, told)
                compared.update(one for one in CAUSES.values() if one in stack)
    assert compared == set(CAUSES.values())


def test_perf_tells_the_same_stack_of_each_sleep(slept):
    found, _, data = slept
    load = found.pid("load")
    # A thread that has ended has no row.
    told = [(s, stack) for s, stack in switches_of(data, load) if s[0] not in "XZ"]
    ours = found.rows(
        "SELECT state, kernel_stack FROM off_cpu WHERE tid = ? AND state != 'new' ORDER BY ts", load
    )
    known = addresses()
    assert [state for state, _ in ours] == [state for state, _ in told]
    compared = 0
    for (state, stack), (_, frames) in zip(ours, told, strict=True):
        if state.startswith("R"):
            assert stack is None
            continue
        mine, its = stack.split(";"), frames[: stack.count(";") + 1]
        same = [a == b or known[a] & known[b] for a, b in zip(mine, its, strict=True)]
        assert all(same), (mine, frames)
        assert mine[-1] == "__schedule"
        compared += 1
    assert compared > 2 * TIMES
