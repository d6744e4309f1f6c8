"""Call paths on the disk of a run: other disks, reads of cold caches, the recorder's own work."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.report.perf import call_chains as by_device
from tracer.analysis.report.perf import call_graphs as stacks_by_device
from tracer.analysis.studies.chains import INSERT, chain_measures, own_chains
from tracer.analysis.views.call_graphs import WRITE_BACK, call_chains
from tracer.store.devices import Devices

OWN, OTHER, PARTITION = "7:0", "254:0", "254:1"
FLUSH, READ, FSYNC, JOURNAL = "wb_workfn", "filemap_read", "do_fsync", "kjournald2"

DISKS = [
    {"name": "loop0", "dev": OWN, "backing_file": "/x", "on": [PARTITION], "scheduler": "none"},
    {"name": "vda", "dev": OTHER},
    {"name": "vda1", "dev": PARTITION, "partition_of": OTHER, "start": 8, "bytes": 1 << 30},
    {"name": "dm-0", "dev": "253:0", "on": [PARTITION, OWN]},
]


def graph(function, count, dev=OWN, operation="write", event=INSERT, pid=7):
    return {
        "event": event, "comm": "x", "pid": pid, "stack": f"kthread_[k];{function}_[k];submit_[k]",
        "count": count, "dev": dev, "operation": operation,
    }  # fmt: skip


ROWS = [
    graph(FLUSH, 17),
    graph(FLUSH, 2, operation="discard"),
    graph(FSYNC, 3),
    graph(READ, 18, operation="read"),
    # The trace, and the image of the loop device, on the other disk.
    graph(FLUSH, 101, OTHER),
    graph(READ, 19, OTHER, "read"),
    graph(FLUSH, 5, None, None),
    graph(READ, 4, None, None, event="page-faults"),
]


@pytest.fixture
def traced(tmp_path):
    traces = []

    def make(rows=ROWS, **manifest):
        facts = {"disks": DISKS, "own_files": {PARTITION: [12]}, **manifest}
        trace = make_trace(tmp_path / f"{len(traces)}", {"call_graphs": rows}, **facts)
        traces.append(trace)
        return trace

    yield make
    for trace in traces:
        trace.close()


def test_only_the_runs_own_disk_counts(traced):
    assert chain_measures(traced(), OWN) == {
        "insert_by_wb_workfn": 19 / 40,
        "insert_writes_by_wb_workfn": 17 / 20,
        "insert_reads": 18 / 40,
        "insert_other_disks": 125 / 165,
    }


@pytest.mark.parametrize("name", [OTHER, PARTITION, "0:60"])
def test_a_partition_and_an_overlay_are_counted_by_their_disk(traced, name):
    mounts = [{"dev": "0:60", "path": "/o", "type": "overlay", "source": "o", "on": PARTITION}]
    found = chain_measures(traced(mounts=mounts), name)
    assert found["insert_by_wb_workfn"] == 101 / 120
    assert found["insert_other_disks"] == 45 / 165


def test_a_mapped_device_is_counted_by_the_disks_that_have_its_requests(traced):
    found = chain_measures(traced(), "253:0")
    assert found["insert_by_wb_workfn"] == 120 / 160
    assert found["insert_other_disks"] == 5 / 165


def test_without_a_disk_of_its_own_all_devices_count(traced):
    assert chain_measures(traced(), None) == {
        "insert_by_wb_workfn": 125 / 165,
        "insert_writes_by_wb_workfn": 118 / 121,
        "insert_reads": 37 / 165,
    }


def test_a_disk_without_a_scheduler_is_said_and_is_not_0(traced):
    trace = traced([row for row in ROWS if row["dev"] != OWN])
    assert chain_measures(trace, OWN) == {
        "insert_by_wb_workfn_why": f"no {INSERT} on the run's own disk was recorded"
        " (its scheduler: none)"
    }
    assert list(own_chains(trace, OWN)["event"]) == ["page-faults"]


@pytest.mark.parametrize("rows", [[], [graph(READ, 4, None, None, event="page-faults")]])
def test_without_the_event_there_is_no_measure(traced, rows):
    for dev in (OWN, None):
        found = chain_measures(traced(rows), dev)
        assert found == {"insert_by_wb_workfn_why": f"no {INSERT} was recorded"}


def test_a_trace_that_names_no_devices_tells_nothing_of_the_own_disk(traced):
    rows = [graph(FLUSH, 3, None, None), graph(READ, 1, None, None)]
    assert set(chain_measures(traced(rows), OWN)) == {"insert_by_wb_workfn_why"}
    assert chain_measures(traced(rows), None) == {"insert_by_wb_workfn": 0.75}


def test_the_extract_has_shares_of_the_own_disk(traced):
    found = own_chains(traced(), OWN)
    inserts = found[found["event"] == INSERT].drop(columns=["event", "comm", "stacks", "path"])
    assert inserts.values.tolist() == [
        [WRITE_BACK, 19, 19 / 40, 17, 17 / 20, 125 / 165],
        ["read", 18, 18 / 40, 0, 0.0, 125 / 165],
        ["fsync", 3, 3 / 40, 3, 3 / 20, 125 / 165],
    ]
    assert found.iloc[0]["path"] == "wb_workfn > submit"
    # An event that names no device counts wherever it was.
    faults = found[found["event"] == "page-faults"].iloc[0]
    assert (faults["count"], faults["share"]) == (4, 1.0)
    assert faults[["writes", "write_share", "other_disks"]].isna().all()


def test_the_report_lists_each_disk(traced):
    trace = traced()
    found = by_device(trace)
    rows = found[found["event"] == INSERT][["dev", "chain", "count", "share", "writes"]]
    assert rows.astype(object).where(rows.notna(), None).values.tolist() == [
        [OTHER, WRITE_BACK, 101, 101 / 120, 101],
        [OTHER, "read", 19, 19 / 120, 0],
        [OWN, WRITE_BACK, 19, 19 / 40, 17],
        [OWN, "read", 18, 18 / 40, 0],
        [OWN, "fsync", 3, 3 / 40, 3],
        [None, WRITE_BACK, 5, 1.0, None],
    ]
    stacks = stacks_by_device(trace)
    assert stacks.groupby("dev")["count"].sum().to_dict() == {OTHER: 120, OWN: 40}


RECORDER, GUARDIAN, PERF = 50, 51, 52


def owns(trace):
    return dict(trace.connection.execute(f"SELECT dev, own FROM {call_chains(trace)}").fetchall())


@pytest.mark.parametrize(
    ("row", "own"),
    [
        (graph(FSYNC, 1, OTHER, pid=GUARDIAN), True),
        (graph(READ, 1, None, None, pid=PERF), True),
        (graph(READ, 1, OTHER, pid=7), False),
        (graph(FLUSH, 1, OTHER, pid=7), None),  # the trace may be among what it writes
        (graph(JOURNAL, 1, OTHER, pid=7), None),
        (graph(FLUSH, 1, OWN, pid=7), False),  # the trace is elsewhere
        (graph(FLUSH, 1, "8:0", pid=7), False),
        (graph(FLUSH, 1, None, pid=7), None),
        (graph(FSYNC, 1, OTHER, pid=None), None),  # of another pid namespace
    ],
)
def test_the_recorders_own_work_as_far_as_it_can_be_told(traced, row, own):
    facts = {
        "recorder": {"pid": RECORDER, "boot_id": "x", "guardian": [GUARDIAN, 1]},
        "perf": {"version": "6", "pids": [PERF]},
    }
    assert owns(traced([row], **facts)) == {row["dev"]: own}
    # Who recorded, or where to, is not known: an imported trace.
    alone = row["pid"] is not None and not any(f in row["stack"] for f in (FLUSH, JOURNAL))
    assert owns(traced([row], own_files={})) == {row["dev"]: False if alone else None}


def test_a_trace_on_a_loop_device_is_on_the_disk_below_it(traced):
    rows = [graph(FLUSH, 1, OWN), graph(FLUSH, 1, OTHER), graph(FLUSH, 1, "8:0")]
    found = owns(traced(rows, own_files={OWN: [12]}))
    assert found == {OWN: None, OTHER: None, "8:0": False}


def test_disks_that_lie_on_each_other_end(traced):
    hostile = [
        {"name": "a", "dev": "1:0", "on": ["1:0", "1:1"]},
        {"name": "b", "dev": "1:1", "on": ["1:0", "1:2"]},
    ]
    devices = Devices({"disks": hostile})
    assert devices.layers("1:0") == ["1:0", "1:1", "1:2"]
    assert devices.requested("1:0") == ["1:2"]


def test_a_device_that_quotes(traced):
    evil = "7:0') OR true --"
    found = chain_measures(traced([*ROWS, graph(READ, 3, evil, "read")]), evil)
    assert found["insert_reads"] == 1.0
