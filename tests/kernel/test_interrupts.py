"""Events that happen in an interrupt, on CPUs that are busy with recorded system calls."""

import pytest

from tracer.probes.kernel import find_tracefs
from tracer.store.trace import Trace

READ_ONLY = f"mount -o remount,bind,ro {find_tracefs()}"

WRITES = 5003
LOAD = f"""
import mmap, os, signal
ended = []
def storm(cpu):
    os.sched_setaffinity(0, [cpu])
    while True: os.getppid()
file = os.open("data", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
page = mmap.mmap(-1, 4096)
for n in range({WRITES}): os.pwritev(file, [page], n * 4096)
os.fsync(file)
for cpu in os.sched_getaffinity(0):
    child = os.fork()
    if child == 0: storm(cpu)
    ended.append(child)
for n in range({WRITES}): os.pwritev(file, [page], n * 4096)
for child in ended:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
"""The parent's writes all wait for a disk, whose interrupts come during the children's calls and
during the recorder's work."""

REQUESTS = (
    "SELECT i.dev, i.sector, i.ts FROM block i JOIN syscalls s ON s.tid = i.tid AND "
    "s.name LIKE 'pwritev%' AND i.ts BETWEEN s.ts AND s.ts + s.dur_ns WHERE i.event = 'issue'"
)
UNFINISHED = (
    f"SELECT count(*) FROM ({REQUESTS}) i WHERE NOT EXISTS (SELECT 1 FROM block c WHERE "
    "c.event = 'complete' AND c.dev = i.dev AND c.sector = i.sector AND c.ts > i.ts)"
)
UNWOKEN = "SELECT count(*) FROM off_cpu WHERE state = 'D' AND dur_ns > 0 AND wake_ns IS NULL"


@pytest.mark.parametrize("backend", ["ftrace", "ebpf"])
def test_no_interrupt_is_lost(record, load, instances):
    """Not by the backend perf: the kernel's perf events miss interrupts of an idle CPU, as the
    perf command shows, too."""
    trace = record(load(LOAD), "-e", "default,sched")
    assert trace.rows(f"SELECT count(*) FROM ({REQUESTS})") == [(2 * WRITES,)]
    assert trace.rows(UNFINISHED) == [(0,)]
    assert trace.rows(UNWOKEN) == [(0,)]
    mine = f"tracer-{trace.manifest['recorder']['pid']}-"
    assert not [name for name in instances() if name.startswith(mine)]


def test_programs_that_did_not_run_are_losses(hidden, load, tmp_path):
    """Without ftrace, BPF programs record interrupts, and none runs while another one does."""
    command = ("record", "--backend", "ebpf", "-e", "default,sched", "-o", "x.trace")
    ran = hidden([READ_ONLY], *command, "--", *load(LOAD))
    assert ran.status == 0, ran.err
    with Trace(tmp_path / "x.trace") as trace:
        [(unfinished,)] = trace.rows(UNFINISHED)
        [(unwoken,)] = trace.rows(UNWOKEN)
        lost = dict(trace.rows("SELECT stream, sum(count) FROM loss GROUP BY stream"))
    assert 0 < unfinished <= lost["ebpf-machine"]
    assert 0 < unwoken <= lost["ebpf-target"]
    assert "0 events lost" not in ran.err
