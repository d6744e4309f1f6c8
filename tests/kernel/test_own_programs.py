"""The BPF programs record what ftrace records of the same calls, page faults and signals."""

import os
import resource
import select
import struct
import subprocess
from collections import Counter, defaultdict
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.loads import PYTHON
from tests.support.waiting import wait_for
from tracer.probes.backends import event_format
from tracer.probes.backends.chunks import ChunkStream
from tracer.probes.backends.drain import Drain
from tracer.probes.backends.event_format import parse
from tracer.probes.backends.ftrace.backend import FtraceBackend
from tracer.probes.backends.ftrace.page_stream import PageStream
from tracer.probes.backends.own_bpf.backend import SIGNAL, OwnPrograms
from tracer.probes.backends.own_bpf.records import SAMPLES, decoder
from tracer.probes.backends.timeline import Timeline
from tracer.probes.catalogue import PROBES
from tracer.probes.errors import FeatureMissing
from tracer.probes.schema import Scope

KIB = 32768
CPUS = sorted(os.sched_getaffinity(0))
SIGNALS = {(10, 0), (14, 128), (13, 0), (11, 1), (7, 2), (6, -6), (17, 1), (17, 2)}
"""Numbers and codes of signals of the load, among them of all ways in which the kernel sends one.

USR1 by kill, ALRM by a timer, PIPE, SEGV, BUS, ABRT by tkill, CHLD of one that exited or was
killed.
"""
COMMON = 8
"""Bytes of an event's common fields."""

LOAD = """
import ctypes, mmap, os, signal, tempfile, threading
libc = ctypes.CDLL(None, use_errno=True)
big = [ctypes.c_long(n * 0x0123456789ABCDEF) for n in range(-3, 3)]
def calls():
    for _ in range(1000):
        libc.syscall(ctypes.c_long(1000), *big)  # there is no such call: -ENOSYS
        os.getppid()
        try: os.read(-1, 1)
        except OSError: pass
def faults():
    with mmap.mmap(-1, 300 * 4096) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        with memoryview(memory) as pages, open("/dev/zero", "rb", 0) as zero:
            for n in range(100): pages[n * 4096] = n  # write
            for n in range(100, 200): pages[n * 4096]  # read
            assert zero.readinto(pages[200 * 4096:]) == 100 * 4096  # by the kernel
def signals():
    before = len(handled)
    signal.setitimer(signal.ITIMER_REAL, 0.001)  # by an interrupt, without details
    while len(handled) == before: pass
    reads, writes = os.pipe()
    os.close(reads)
    try: os.write(writes, b"x")  # SIGPIPE, without details
    except BrokenPipeError: pass
    os.close(writes)
def fails(how):
    if os.fork() == 0:
        if how == signal.SIGSEGV: ctypes.memset(8, 0, 1)
        if how == signal.SIGBUS:
            with tempfile.TemporaryFile() as file:
                file.truncate(4096)
                with mmap.mmap(file.fileno(), 4096) as memory:
                    file.truncate(0)
                    memory[0]
        if how == signal.SIGILL: os.abort()
        os._exit(0)
    os.wait()
handled = []
for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGPIPE):
    signal.signal(number, lambda *_: handled.append(1))
os.write(1, b"r")
os.read(0, 1)
calls()
faults()
for _ in range(10):
    for _ in range(3): os.kill(os.getpid(), signal.SIGUSR1)  # returns by rt_sigreturn
    signals()
for how in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL): fails(how)
threads = [threading.Thread(target=work) for work in (calls, calls, faults, faults)]
for one in threads: one.start()
for one in threads: one.join()
for _ in range(5):
    if os.fork() == 0:
        calls()
        faults()
        if os.fork() == 0:
            os.execv("/bin/true", ["true"])
        if os.fork() == 0:  # by a thread that then has its process's number
            threading.Thread(target=os.execv, args=("/bin/true", ["true"])).start()
            signal.pause()
        os.wait()
        os.wait()
        os._exit(0)
    os.wait()
os.write(1, b"d")
os.read(0, 1)
"""


@pytest.fixture
def job():
    """A process that waits for a byte, makes calls of many kinds, and waits again."""
    command = [*PYTHON, "-c", LOAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert os.read(process.stdout.fileno(), 1) == b"r"
        yield process
        process.kill()


def asleep(pid):
    """Returns whether the process waits in a call."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def events(streams):
    """Returns by thread its events in time order: (time, id of the event, its fields)."""
    found = defaultdict(list)
    for batch in Timeline(streams).batches():
        for n in range(len(batch)):
            begin, length = int(batch.offset[n]), int(batch.length[n])
            fields = batch.payload[begin + COMMON : begin + length].tobytes()
            found[int(batch.tid[n])].append((int(batch.ts[n]), int(batch.type[n]), fields))
    for stream in streams:
        stream.close()
    return found


@contextmanager
def both(tmp_path, pid, kib, everybody=False):
    """Records the calls of a process by ftrace and by the programs, which are returned."""
    (tmp_path / "f").mkdir()
    (tmp_path / "b").mkdir()
    probes = [PROBES["syscalls"], PROBES["page_faults"]]
    ftrace = FtraceBackend(tmp_path / "f", probes, dict.fromkeys(Scope, KIB), CPUS)
    calls = OwnPrograms(tmp_path / "b", kib, CPUS, everybody, probes)
    filters = [ftrace.filters[Scope.TARGET], calls]
    assert ftrace.formats == calls.formats
    try:
        wait_for(lambda: asleep(pid), "the job's first read")
        for one in filters:
            assert one.set_option("event-fork", True)
            one.set_pids([pid])
            one.start()
        yield ftrace, calls
    finally:
        for source in (*ftrace.sources, *calls.sources):
            source.close()
        for one in filters:
            one.close()


def work(job, ftrace, calls):
    """Lets the job make its calls."""
    job.stdin.write(b"g")
    job.stdin.flush()
    assert os.read(job.stdout.fileno(), 1) == b"d"
    wait_for(lambda: asleep(job.pid), "the job's last read")
    calls.stop()
    ftrace.filters[Scope.TARGET].stop()
    for source in ftrace.sources:
        source.move_last()


def of_ftrace(ftrace):
    layout = event_format.parse_page(ftrace.layout["header_page"])
    formats = {name: event_format.parse(name, text) for name, text in ftrace.formats.items()}
    common = event_format.common_fields(formats)
    return events([PageStream(s.path.stem, s.cpu, s.path, layout, common) for s in ftrace.sources])


def of_programs(calls):
    assert all(source.describe() == {"samples": SAMPLES} for source in calls.sources)
    return [ChunkStream(s.path.stem, s.cpu, s.path, decoder(s.cpu)) for s in calls.sources]


@pytest.mark.parametrize("everybody", [False, True])
def test_the_programs_record_what_ftrace_records(tmp_path, job, everybody):
    with both(tmp_path, job.pid, KIB, everybody) as (ftrace, calls):
        work(job, ftrace, calls)
        for source in calls.sources:
            source.move_last()
        expected, found = of_ftrace(ftrace), events(of_programs(calls))
        ids = {parse(name, text).id: name for name, text in calls.formats.items()}
    found = {tid: found[tid] for tid in (expected if everybody else found)}
    assert len(expected) == 1 + 3 + 4 + 4 * 5
    everything = [(ids[n], fields) for its in expected.values() for _, n, fields in its]
    count = Counter(name for name, _ in everything)
    assert min(count[f"raw_syscalls:sys_{way}"] for way in ("enter", "exit")) > 8 * 1000 * 3
    assert count["exceptions:page_fault_user"] > 8 * 200
    assert count["exceptions:page_fault_kernel"] > 8 * 100
    signals = [struct.unpack("<iii", at[:12]) for name, at in everything if name == SIGNAL]
    assert {(number, code) for number, _, code in signals} >= SIGNALS
    assert {tid: without_time(its) for tid, its in found.items()} == {
        tid: without_time(its) for tid, its in expected.items()
    }
    for tid, its in found.items():
        # Each event has both times before the next one has either.
        pairs = [sorted(pair) for pair in zip(times(its), times(expected[tid]), strict=True)]
        assert all(one[1] <= two[0] for one, two in pairwise(pairs))


def test_a_small_ring_that_is_drained_meanwhile_keeps_or_counts_every_event(tmp_path, job):
    """The ring wraps hundreds of times."""
    with both(tmp_path, job.pid, 16) as (ftrace, calls):
        drain = Drain(calls.sources)
        drain.start()
        work(job, ftrace, calls)
        drain.finish()
        assert drain.failure is None
        streams = of_programs(calls)
        expected, found = of_ftrace(ftrace), events(streams)
    lost = sum(gap.count for stream in streams for gap in stream.gaps)
    assert sum(map(len, found.values())) + lost == sum(map(len, expected.values()))
    assert sum(map(len, found.values())) > 1000
    for tid, its in found.items():
        # What is there is the same as ftrace's, in the same order.
        theirs = iter(without_time(expected[tid]))
        assert all(event in theirs for event in without_time(its))


def test_a_full_ring_wakes_the_drain_and_counts_what_it_has_no_room_for(tmp_path, job):
    with both(tmp_path, job.pid, 16) as (ftrace, calls):
        poll = select.poll()
        for source in calls.sources:
            poll.register(source.wakes, select.POLLIN)
        assert poll.poll(0) == []
        work(job, ftrace, calls)
        assert poll.poll(0) != []
        before = [source.stats() for source in calls.sources]
        for source in calls.sources:
            source.move_last()
        streams = of_programs(calls)
        expected, found = of_ftrace(ftrace), events(streams)
    kept, lost = sum(map(len, found.values())), sum(one["dropped events"] for one in before)
    assert kept == sum(one["entries"] for one in before)
    assert kept + lost == sum(map(len, expected.values()))
    assert lost == sum(gap.count for stream in streams for gap in stream.gaps) > 0


def test_threads_are_left_out_and_forgotten(tmp_path, job):
    with both(tmp_path, job.pid, KIB) as (_, calls):
        assert calls.without([job.pid, os.getpid()]) == {os.getpid()}
        calls.add_pids([os.getpid()])
        assert calls.without([job.pid, os.getpid()]) == set()
        with subprocess.Popen(["sleep", "9"]) as child:
            assert calls.without([child.pid]) == set()
            child.kill()
        wait_for(lambda: calls.without([child.pid]) == {child.pid}, "the end of the thread")
        calls.leave_out([os.getpid()])
        with subprocess.Popen(["sleep", "9"]) as child:
            assert calls.without([child.pid]) == {child.pid}
            child.kill()


@pytest.mark.skipif(len(CPUS) < 2, reason="the second ring is that of a second CPU")
def test_a_ring_that_cannot_be_mapped_is_a_missing_feature_and_leaves_nothing(tmp_path):
    before = sorted(os.listdir("/proc/self/fd"))
    kept = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    # There is room for the first ring and not for the second one.
    most = pages * resource.getpagesize() + KIB * 1024 * 7 // 4
    resource.setrlimit(resource.RLIMIT_AS, (most, kept[1]))
    try:
        with pytest.raises(FeatureMissing, match="32768 KiB of a BPF map cannot be mapped"):
            OwnPrograms(tmp_path, KIB, CPUS[:2], everybody=False, probes=[PROBES["syscalls"]])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, kept)
    assert list(tmp_path.iterdir()) == []
    assert sorted(os.listdir("/proc/self/fd")) == before


def times(its):
    return [time for time, _, _ in its]


def without_time(its):
    return [(event, fields) for _, event, fields in its]
