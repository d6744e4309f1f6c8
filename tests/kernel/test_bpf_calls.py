"""The BPF programs for system calls record what ftrace records of the same calls."""

import os
import subprocess
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.loads import PYTHON
from tests.support.waiting import wait_for
from tracer.probes.backends import event_format
from tracer.probes.backends.bpf_calls.backend import BpfCalls
from tracer.probes.backends.bpf_calls.records import SAMPLES, decoder
from tracer.probes.backends.chunks import ChunkStream
from tracer.probes.backends.ftrace.backend import FtraceBackend
from tracer.probes.backends.ftrace.page_stream import PageStream
from tracer.probes.backends.timeline import Timeline
from tracer.probes.catalogue import PROBES
from tracer.probes.schema import Scope

KIB = 4096
CPUS = sorted(os.sched_getaffinity(0))
COMMON = 8
"""Bytes of an event's common fields."""

LOAD = """
import ctypes, os, signal, threading
libc = ctypes.CDLL(None, use_errno=True)
big = [ctypes.c_long(n * 0x0123456789ABCDEF) for n in range(-3, 3)]
def calls():
    for _ in range(1000):
        libc.syscall(ctypes.c_long(1000), *big)  # there is no such call: -ENOSYS
        os.getppid()
        try: os.read(-1, 1)
        except OSError: pass
handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
os.write(1, b"r")
os.read(0, 1)
calls()
for _ in range(50): os.kill(os.getpid(), signal.SIGUSR1)  # returns by rt_sigreturn
threads = [threading.Thread(target=calls) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
for _ in range(5):
    if os.fork() == 0:
        calls()
        if os.fork() == 0:
            os.execv("/bin/true", ["true"])
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


def move_all(backend):
    for source in backend.sources:
        source.move_last()


def recorded(backend, streams):
    for source in backend.sources:
        source.close()
    backend_events = events(streams)
    for one in {*backend.filters.values()} if hasattr(backend, "filters") else {backend}:
        one.close()
    return backend_events


@pytest.mark.parametrize("everybody", [False, True])
def test_the_programs_record_what_ftrace_records(tmp_path, job, everybody):
    (tmp_path / "f").mkdir()
    (tmp_path / "b").mkdir()
    probes = [PROBES["syscalls"]]
    ftrace = FtraceBackend(tmp_path / "f", probes, dict.fromkeys(Scope, KIB), CPUS)
    calls = BpfCalls(tmp_path / "b", KIB, CPUS, everybody)
    filters = [ftrace.filters[Scope.TARGET], calls]
    wait_for(lambda: asleep(job.pid), "the job's first read")
    for one in filters:
        assert one.set_option("event-fork", True)
        one.set_pids([job.pid])
        one.start()
    job.stdin.write(b"g")
    job.stdin.flush()
    assert os.read(job.stdout.fileno(), 1) == b"d"
    wait_for(lambda: asleep(job.pid), "the job's last read")
    for one in filters:
        one.stop()
    move_all(ftrace)
    move_all(calls)
    layout = event_format.parse_page(ftrace.layout["header_page"])
    formats = {name: event_format.parse(name, text) for name, text in ftrace.formats.items()}
    common = event_format.common_fields(formats)
    pages = [PageStream(s.path.stem, s.cpu, s.path, layout, common) for s in ftrace.sources]
    chunks = [ChunkStream(s.path.stem, s.cpu, s.path, decoder(s.cpu)) for s in calls.sources]
    assert all(source.describe() == {"samples": SAMPLES} for source in calls.sources)
    assert ftrace.formats == calls.formats
    expected, found = recorded(ftrace, pages), recorded(calls, chunks)
    found = {tid: found[tid] for tid in (expected if everybody else found)}
    assert len(expected) == 1 + 4 + 2 * 5
    assert sum(map(len, expected.values())) > 10 * 1000 * 3 * 2
    assert {tid: without_time(its) for tid, its in found.items()} == {
        tid: without_time(its) for tid, its in expected.items()
    }
    for tid, its in found.items():
        # Each event has both times before the next one has either.
        both = [sorted(pair) for pair in zip(times(its), times(expected[tid]), strict=True)]
        assert all(one[1] <= two[0] for one, two in pairwise(both))


def times(its):
    return [time for time, _, _ in its]


def without_time(its):
    return [(event, fields) for _, event, fields in its]
