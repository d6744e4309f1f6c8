"""The files behind faults, as the threads of a process come and go."""

import json
import struct

import pytest

from tests.support.pages import FAULT_FORMATS, Page, fault, newtask, raw_trace
from tracer.probes.backends import chunks
from tracer.store.trace import Trace

FORK, EXIT, MMAP2 = 7, 4, 10
JOB, WORKER, LATE = 100, 101, 102
ADDRESS = 0x5000
THREAD = 0x10000


def record(kind, time, tid, body):
    """One record of a perf ring, in the context of a thread of the job."""
    body += bytes(-len(body) % 8) + struct.pack("<iiqII", JOB, tid, time, 0, 0)
    return struct.pack("<IHH", kind, 0, 8 + len(body)) + body


def mapped(time, path=b"/data"):
    place = struct.pack("<iiQQQIIQQII", JOB, JOB, ADDRESS, 4096, 0, 8, 1, 5, 0, 3, 2)
    return record(MMAP2, time, JOB, place + path + b"\0")


def forked(time, by, tid):
    return record(FORK, time, by, struct.pack("<iiiiQ", JOB, JOB, tid, by, time))


def ended(time, tid):
    return record(EXIT, time, tid, struct.pack("<iiiiQ", JOB, 1, tid, 1, time))


@pytest.fixture
def files(tmp_path):
    """The file of each fault of the worker, at these times; `records` are those of mappings."""

    def make(times, records, listed):
        page = Page(0).event(1, newtask(JOB, WORKER, b"worker", THREAD))
        for time in times:
            page.event(time, fault(WORKER, ADDRESS))
        data = b"".join(records)
        data = chunks.header(chunks.DATA, -1, len(data), 0, 1000, 0) + data
        raw_trace(
            tmp_path / "t", {0: [page]}, {"perf:major-faults": data}, probes=["page_faults"],
            formats=FAULT_FORMATS,
        )  # fmt: skip
        threads = [[tid, JOB, 1, "job", None] for tid in listed]
        (tmp_path / "t/raw/threads.json").write_text(json.dumps(threads))
        with Trace(tmp_path / "t") as trace:
            return [file for (file,) in trace.rows("SELECT file FROM page_faults ORDER BY ts")]

    return make


def test_mappings_last_until_the_last_thread_ends(files):
    records = [mapped(10), ended(30, JOB), forked(40, WORKER, LATE), ended(60, WORKER)]
    records += [ended(80, LATE)]
    # The last one stands for another process of the number, whose fork was not recorded.
    found = files([20, 35, 50, 70, 90], records, listed=[JOB, WORKER])
    assert found == ["/data", "/data", "/data", "/data", None]


def test_mappings_of_a_process_with_unknown_threads_are_kept(files):
    found = files([20, 50], [mapped(10), ended(30, JOB)], listed=[])
    assert found == ["/data", "/data"]
