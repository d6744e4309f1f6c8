"""Events that happen in an interrupt, on CPUs that are busy with recorded system calls."""

import re
from bisect import bisect_left
from collections import defaultdict

import pytest

from tests.support.hiding import NO_BTF, READ_ONLY
from tracer.probes.kernel import find_tracefs
from tracer.store.trace import Trace

pytestmark = pytest.mark.quiet


WRITES, FEWER = 3001, 1009
LOAD = """
import mmap, os, signal
ended = []
def storm(cpu):
    os.sched_setaffinity(0, [cpu])
    while True: os.getppid()
file = os.open("data", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
page = mmap.mmap(-1, 4096)
for n in range(WRITES): os.pwritev(file, [page], n * 4096)
os.fsync(file)
for cpu in os.sched_getaffinity(0):
    child = os.fork()
    if child == 0: storm(cpu)
    ended.append(child)
for n in range(WRITES): os.pwritev(file, [page], n * 4096)
for child in ended:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
"""The parent's writes all wait for a disk, whose interrupts come during the children's calls and
during the recorder's work. A line before the load sets WRITES."""

REQUESTS = (
    "SELECT i.dev, i.sector, i.ts AS start_ns, "
    "coalesce(lead(i.ts) OVER (PARTITION BY i.dev, i.sector ORDER BY i.ts), 9e18::BIGINT) "
    "AS end_ns FROM block i JOIN syscalls s ON s.tid = i.tid AND s.name LIKE 'pwritev%' AND "
    "i.ts BETWEEN s.ts AND s.ts + s.dur_ns WHERE i.event = 'bio_queue' AND i.rwbs = 'WS'"
)
UNFINISHED = (
    f"SELECT sector, start_ns, end_ns FROM ({REQUESTS}) i WHERE NOT EXISTS (SELECT 1 FROM block c "
    "WHERE c.event = 'complete' AND c.dev = i.dev AND c.sector = i.sector AND c.ts > start_ns "
    "AND c.ts < end_ns)"
)
UNWOKEN = (
    "SELECT tid, ts, ts + dur_ns FROM off_cpu WHERE state = 'D' AND dur_ns > 0 AND wake_ns IS NULL"
)


@pytest.mark.parametrize("backend", ["ftrace", "ebpf"])
def test_no_interrupt_is_lost(record, load, instances):
    """Not by the backend perf: the kernel's perf events miss interrupts of an idle CPU, as the
    perf command shows, too."""
    trace = record(load(f"WRITES = {WRITES}\n{LOAD}"), "-e", "default,sched")
    assert trace.rows(f"SELECT count(*) FROM ({REQUESTS})") == [(2 * WRITES,)]
    assert trace.rows(UNFINISHED) == []
    assert trace.rows(UNWOKEN) == []
    mine = f"tracer-{trace.manifest['recorder']['pid']}-"
    assert not [name for name in instances() if name.startswith(mine)]


LINE = re.compile(
    r".+-(?P<tid>\d+) +\[\d+\] \S+ +(?P<seconds>\d+\.\d{6}): "
    r"(?:block_rq_complete: .*\) (?P<sector>\d+) \+ .*|sched_waking: .* pid=(?P<woken>\d+) .*)"
)
"""A line of ftrace; `tid` is the thread that was interrupted."""


@pytest.fixture
def logged():
    """Log finished requests and wake-ups by ftrace during the test; returns its lines so far."""
    instance = find_tracefs() / "instances/test-interrupts"
    instance.mkdir()
    try:
        (instance / "trace_clock").write_text("mono")
        (instance / "buffer_size_kb").write_text("65536")
        for event in ("block/block_rq_complete", "sched/sched_waking"):
            (instance / "events" / event / "enable").write_text("1")

        def lines():
            (instance / "tracing_on").write_text("0")
            text = (instance / "trace").read_text()
            assert all("\noverrun: 0\n" in s.read_text() for s in instance.glob("per_cpu/*/stats"))
            return [found for line in text.splitlines() if (found := LINE.fullmatch(line))]

        yield lines
    finally:
        instance.rmdir()


def not_recorded(trace, lines):
    """Returns the (requests, waits) without a recorded end whose end interrupted the load.

    Interrupts of other threads do not count: some kernels run no BPF program in an interrupt of
    certain threads, and do not count it.
    """
    load = {tid for (tid,) in trace.rows("SELECT DISTINCT tid FROM syscalls")}
    ends = defaultdict(list)
    for line in lines:
        if int(line["tid"]) in load:
            about = int(line["sector"] or line["woken"])
            ends[bool(line["sector"]), about].append(round(float(line["seconds"]) * 1e9))

    def ended(requests, about, start, end):
        times = ends[requests, about]
        return bisect_left(times, start) < bisect_left(times, end)

    return (
        sum(ended(True, *row) for row in trace.rows(UNFINISHED)),
        sum(ended(False, *row) for row in trace.rows(UNWOKEN)),
    )


def test_programs_that_did_not_run_are_losses(hidden, load, tmp_path, logged):
    """Without ftrace, BPF programs record interrupts, and none runs while another one does.

    An ftrace instance of the test's own tells which interrupts came during the load's calls. The
    programs of `own_bpf` do not hinder others: without BTF, those of bcc record the calls.
    """
    command = ("record", "--backend", "ebpf", "-e", "default,sched", "-o", "x.trace")
    ran = hidden([READ_ONLY, NO_BTF], *command, "--", *load(f"WRITES = {FEWER}\n{LOAD}"))
    assert ran.status == 0, ran.err
    with Trace(tmp_path / "x.trace") as trace:
        assert len(trace.rows(REQUESTS)) == 2 * FEWER
        unfinished, unwoken = not_recorded(trace, logged())
        lost = dict(trace.rows("SELECT stream, sum(count) FROM loss GROUP BY stream"))
    assert 0 < unfinished <= lost["ebpf-machine"]
    assert 0 < unwoken <= lost["ebpf-target"]
    assert ", 0 events lost" not in ran.err
