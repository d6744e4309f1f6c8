"""Tables and views of a trace that means harm: they are made, and say what fits in 64 bits."""

import json
from itertools import cycle

import pytest

from analysis.report.by_phase import BY, by_phase
from analysis.report.tables import TABLES as REPORT
from analysis.report.tables import records
from analysis.views.catalogue import VIEWS
from probes.catalogue import TABLES
from probes.schema import Type
from tests.support.traces import make_trace
from tracer.store.trace import dump

NAMES = (
    "<script>alert(1)</script>",
    "\x1b[2J\x1b]0;x\x07",
    "two\nlines",
    "'; DROP TABLE x; --",
    "",
)
EVENTS = {
    "writeback": ("start", "written"),
    "dirty": ("dirty_folio", "mark_inode_dirty", "balance_dirty_pages"),
    "inode_writeback": ("start", "end"),
    "file_writes": ("writepages_start", "writepages_end", "fsync_start", "fsync", "direct_start"),
    "block": ("bio_queue", "insert", "issue", "requeue", "complete"),
}
TEXTS = {
    "rwbs": ("W", "WS", "R", "FWFSM", "\x1b[31m"),
    "role": ("target", "child", "daemon", "flusher", "<b>"),
    "target": ("job", *NAMES),
    "dev": ("254:0", "0:0", *NAMES),
    "bdi": ("254:0", *NAMES),
    "kind": ("minor", "major", "unknown", "syscall"),
    "name": ("step", "train", "forward", "fetch", "fsync", "read", *NAMES),
}
NUMBERS = {
    Type.INT16: (0, 1, -(1 << 15), (1 << 15) - 1),
    Type.INT32: (7, 8, 7, 0, -(1 << 31), (1 << 31) - 1),
    Type.INT64: (0, 5, 100, (1 << 63) - 1, -(1 << 63), 10**18, -7, 3, 1 << 62, 50, 200),
    Type.UINT64: (11, 1 << 63, (1 << 64) - 1, 0, 12),
    Type.FLOAT64: (0.5, float("nan"), float("inf"), -1e308, 1e308),
    Type.BOOL: (True, False),
}
ROWS = 157  # a prime: no two columns repeat together


def content():
    made = {}
    for table in TABLES.values():
        columns = {}
        for number, column in enumerate(table.columns):
            of = NUMBERS.get(column.type) or TEXTS.get(column.name, NAMES)
            if column.name == "event":
                of = EVENTS.get(table.name, NAMES)
            if column.nullable:
                of = (*of, None)
            values = cycle(of)
            for _ in range(number):
                next(values)
            columns[column.name] = values
        made[table.name] = [
            {name: next(values) for name, values in columns.items()} for _ in range(ROWS)
        ]
    return made


@pytest.fixture
def hostile(tmp_path):
    with make_trace(tmp_path / "t", content()) as trace:
        yield trace


@pytest.mark.parametrize("name", REPORT)
def test_a_table_of_the_report_is_made(hostile, name):
    make, _ = REPORT[name]
    assert isinstance(json.loads(dump(records(make(hostile)))), list)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_made(hostile, name):
    frame = VIEWS[name].frame(hostile)
    assert len(frame.columns) == len(VIEWS[name].columns)
    assert len(frame) or name == "stalls"  # no thread here is of one target alone


@pytest.mark.parametrize("by", BY)
def test_what_the_kernel_did_is_grouped(hostile, by):
    assert len(by_phase(hostile, by))


def test_a_hundred_thousand_processes(tmp_path):
    processes = range(1, 100_001)
    rows = {
        "processes": [{"pid": n, "tid": n, "role": "target", "comm": f"p{n}"} for n in processes],
        "syscalls": [
            {"ts": n, "pid": n, "tid": n, "nr": 0, "name": "read", "dur_ns": n} for n in processes
        ],
        "phases": [{"start": n, "end": n + 1, "pid": n, "tid": n, "name": "x"} for n in processes],
    }
    with make_trace(tmp_path / "t", rows) as trace:
        calls = trace.sql(
            f"SELECT count(*) AS n, count(phase) AS p FROM {VIEWS['calls'].make(trace)}"
        )
        (phases,) = records(REPORT["phases"][0](trace))
    assert calls.iloc[0].tolist() == [100_000, 100_000]
    assert (phases["processes"], phases["calls"]) == (100_000, 100_000)
