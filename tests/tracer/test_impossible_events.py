"""Events that cannot be - of no thread, CPU or time that Linux has - are left out and counted."""

import struct

import pytest

from tests.support.budget import within_budget
from tests.support.pages import FAULT_FORMATS, Page, enter, exited, fault, raw_trace
from tracer.probes.backends import chunks
from tracer.probes.limits import PID_LIMIT
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

GETPID = 39
TIDS = [-1, -(1 << 31), PID_LIMIT, (1 << 31) - 1]
WRONG = [
    *({"tid": tid} for tid in TIDS),
    *({"cpu": cpu} for cpu in (-1, 40_000)),
    *({"time": time} for time in (-1, 1 << 62)),
]
PROBES = ["syscalls", "page_faults"]


def bpf_record(time, tid, cpu=0, event=443):
    body = struct.pack("<qiiHHI", time, tid, 7, event, cpu & 0xFFFF, 0) + enter(tid, GETPID)[8:]
    return struct.pack("<II", len(body), 0) + body + bytes(-len(body) % 8)


def tracepoint(time, tid, cpu=0):
    raw = enter(tid, GETPID)
    raw += bytes(-(len(raw) + 4) % 8)
    body = struct.pack("<iiqIII", 7, 7, time, cpu & 0xFFFFFFFF, 0, len(raw)) + raw
    return struct.pack("<IHH", 9, 0, 8 + len(body)) + body


def major_fault(time, tid, cpu=0):
    body = struct.pack("<QiiqQII", 0x1000, tid, tid, time, 0x5000, cpu & 0xFFFFFFFF, 0)
    return struct.pack("<IHH", 9, 2, 8 + len(body)) + body


RECORDS = {
    "ebpf": bpf_record,
    "tracepoints": tracepoint,
    "perf:major-faults": major_fault,
}


def chunk(data, end=1000):
    return chunks.header(chunks.DATA, -1, len(data), 0, end, 0) + data


def lost(time, count):
    trailer = struct.pack("<iiQII", 1, 1, time & ((1 << 64) - 1), 0, 0)
    return struct.pack("<IHHQQ", 2, 0, 48, 0, count) + trailer


def opened(folder):
    Trace(folder).close()


def left_out(folder):
    """The number of events that the tables lack, as the trace says."""
    with Trace(folder) as trace:
        query = "SELECT sum(count) FROM loss WHERE cause = 'impossible event'"
        return trace.connection.execute(query).fetchone()[0]


def rows(folder, table):
    with Trace(folder) as trace:
        return trace.connection.execute(f'SELECT ts, cpu, tid FROM "{table}"').fetchall()


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """Has the loops compiled before their time counts."""
    folder = tmp_path_factory.mktemp("first") / "t"
    records = {samples: chunk(record(20, 7)) for samples, record in RECORDS.items()}
    raw_trace(
        folder, {0: [Page(0).event(10, fault(7, 1))]}, records, probes=PROBES,
        formats=FAULT_FORMATS,
    )  # fmt: skip
    opened(folder)


def test_impossible_events_in_pages_are_left_out_and_counted(tmp_path):
    page = Page(0).event(10, fault(7, 0x5000))
    for tid in TIDS:
        page.event(20, fault(tid, 0x5000, user=False)).event(20, fault(tid, 0x6000))
        page.event(20, enter(tid, GETPID))
    raw_trace(tmp_path / "t", {0: [page]}, probes=PROBES, formats=FAULT_FORMATS)
    assert within_budget(opened, tmp_path / "t") is None
    assert rows(tmp_path / "t", "page_faults") == [(10, 0, 7)]
    assert left_out(tmp_path / "t") == 3 * len(TIDS)


@pytest.mark.parametrize("samples", RECORDS)
def test_impossible_events_in_records_are_left_out_and_counted(tmp_path, samples):
    record, good = RECORDS[samples], {"time": 500, "tid": 7, "cpu": 3}
    data = record(**good) + b"".join(record(**good | wrong) for wrong in WRONG) + record(**good)
    raw_trace(tmp_path / "t", {}, {samples: chunk(data)}, probes=PROBES, formats=FAULT_FORMATS)
    assert within_budget(opened, tmp_path / "t") is None
    assert left_out(tmp_path / "t") == len(WRONG)
    if samples != "perf:major-faults":  # which are no rows of their own
        assert rows(tmp_path / "t", "syscalls") == [(500, 3, 7)] * 2


@pytest.mark.parametrize("count", [1 << 48, 1 << 63, (1 << 64) - 1])
def test_an_impossible_loss_has_an_unknown_size(tmp_path, count):
    records = lost(100, 5) + lost(-1, count) + lost(1 << 62, count) + major_fault(500, 7)
    data = chunk(records) + chunk(major_fault(600, 7), end=(1 << 63) - 1)
    raw_trace(tmp_path / "t", {}, {"perf:major-faults": data}, probes=PROBES, formats=FAULT_FORMATS)
    assert within_budget(opened, tmp_path / "t") is None
    with Trace(tmp_path / "t") as trace:
        query = 'SELECT "from", "to", count, cause FROM loss ORDER BY ALL NULLS FIRST'
        found = trace.connection.execute(query).fetchall()
    assert [row for row in found if row[3] == "buffer full"] == [
        (None, None, None, "buffer full"),
        (0, 100, 5, "buffer full"),
        (100, None, None, "buffer full"),
    ]
    assert [row[3] for row in found if row[3] != "buffer full"] == ["torn end"]


def test_a_thread_made_beyond_all_threads_is_none(tmp_path):
    newtask = struct.pack("<HBBi", 205, 0, 0, 7) + struct.pack("<i16s4xQh", 1 << 30, b"x", 0, 0)
    page = Page(0).event(10, newtask).event(20, enter(7, GETPID)).event(30, exited(7))
    raw_trace(tmp_path / "t", {0: [page]})
    assert within_budget(opened, tmp_path / "t") is None
    assert [tid for _, _, tid in rows(tmp_path / "t", "syscalls")] == [7]
    with Trace(tmp_path / "t") as trace:
        assert trace.connection.execute("SELECT tid FROM processes").fetchall() == [(7,)]
