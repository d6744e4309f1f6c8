"""Report tables over small traces with known answers."""

import json
from itertools import product

import pytest

from tests.support.traces import make_trace
from tracer.analysis.report import tables
from tracer.analysis.report.text import target_line

JOB, CHILD, KWORKER = 7, 8, 50
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python"},
    {"pid": CHILD, "tid": CHILD, "role": "child", "target": "job", "comm": "worker"},
    {"pid": KWORKER, "tid": KWORKER, "role": "flusher", "comm": "kworker/u8:1"},
]


def test_events_are_counted_by_role(tmp_path):
    content = {
        "processes": PROCESSES,
        "syscalls": [{"ts": i, "tid": JOB, "nr": 1, "name": "read"} for i in range(5)],
        "page_faults": [
            {"ts": 1, "tid": CHILD, "user": True, "kind": "unknown"},
            {"ts": 2, "tid": CHILD, "user": False, "kind": "unknown"},
        ],
        "block": [
            {"ts": 1, "tid": KWORKER, "event": "issue"},
            {"ts": 2, "tid": 999, "event": "issue"},
        ],
    }
    with make_trace(tmp_path / "t", content) as trace:
        found = tables.event_counts(trace).set_index("event")
    assert found.loc["raw_syscalls:sys_enter", ["target", "child", "total"]].tolist() == [5, 0, 5]
    assert found.loc["exceptions:page_fault_user", "child"] == 1
    assert found.loc["block:block_rq_issue", ["flusher", "other"]].tolist() == [1, 1]
    assert "writeback:writeback_start" not in found.index


def test_an_event_that_the_kernel_lacked_has_no_count(tmp_path):
    recorded = {"formats": {"block:block_touch_buffer": ""}}
    content = {"processes": PROCESSES, "buffers": []}
    with make_trace(tmp_path / "t", content, capture=recorded) as trace:
        found = {r["event"]: r["total"] for r in tables.records(tables.event_counts(trace))}
    assert found == {"block:block_touch_buffer": 0, "block:block_dirty_buffer": None}


def test_calls_errors_and_time(tmp_path):
    content = {
        "syscalls": [
            {"ts": 1, "tid": 1, "nr": 0, "name": "read", "dur_ns": 1000, "ret": 5},
            {"ts": 2, "tid": 1, "nr": 0, "name": "read", "dur_ns": 3000, "ret": -11},
            {"ts": 3, "tid": 1, "nr": 0, "name": "read"},
            {"ts": 4, "tid": 1, "nr": 9, "name": "mmap", "dur_ns": 10**9, "ret": -4096},
        ]
    }
    with make_trace(tmp_path / "t", content) as trace:
        found = tables.records(tables.syscalls(trace))
    assert [r["name"] for r in found] == ["mmap", "read"]
    read = found[1]
    assert (read["calls"], read["errors"], read["unfinished"]) == (3, 1, 1)
    assert (read["total_s"], read["mean_us"], read["max_us"]) == (4e-6, 2.0, 3.0)
    assert found[0]["errors"] == 0  # an address is no error


def test_values_that_the_backend_lacks_are_null_not_zero(tmp_path):
    fault = {"ts": 1, "pid": JOB, "tid": JOB, "user": True, "access": "write"}
    content = {
        "processes": PROCESSES,
        "page_faults": [{**fault, "kind": "unknown"}, {**fault, "kind": "unknown"}],
    }
    with make_trace(tmp_path / "t", content) as trace:
        (row,) = tables.records(tables.page_faults(trace))
        (cause,) = tables.records(tables.fault_causes(trace))
    assert (row["faults"], row["writes"], row["minor"], row["major"]) == (2, 2, None, None)
    assert (cause["faults"], cause["minor"], cause["major"]) == (2, None, None)


def test_faults_that_failed_are_neither_minor_nor_major(tmp_path):
    fault = {"ts": 1, "pid": JOB, "tid": JOB, "user": True, "access": "write"}
    kinds = ["unknown", "minor", "minor", "major"]
    content = {"processes": PROCESSES, "page_faults": [{**fault, "kind": k} for k in kinds]}
    with make_trace(tmp_path / "t", content) as trace:
        (row,) = tables.records(tables.page_faults(trace))
    assert [row[name] for name in ("faults", "minor", "major", "neither")] == [4, 2, 1, 1]


def test_faults_by_what_took_them(tmp_path):
    fault = {"ts": 1, "pid": JOB, "tid": JOB, "user": True, "kind": "minor"}
    loader = {**fault, "ip_file": "/lib/ld.so", "symbol": "_dl_relocate_object"}
    content = {
        "processes": PROCESSES,
        "page_faults": [loader, {**loader, "kind": "major"}, loader, fault],
    }
    with make_trace(tmp_path / "t", content) as trace:
        first, second = tables.records(tables.fault_causes(trace))
    assert (first["file"], first["symbol"]) == ("/lib/ld.so", "_dl_relocate_object")
    assert (first["faults"], first["minor"], first["major"], first["percent"]) == (3, 2, 1, 75.0)
    assert (second["file"], second["symbol"], second["faults"]) == (None, None, 1)


def test_reasons_sum_to_one_and_intervals_are_those_between_starts(tmp_path):
    def start(s, reason, bdi="254:0"):
        return {"ts": int(s * 1e9), "tid": 50, "event": "start", "reason": reason, "bdi": bdi}

    content = {
        "writeback": [
            start(1, "periodic"),
            start(3, "background"),
            start(4, "periodic"),
            start(9, "periodic"),
            start(100, "periodic", "7:0"),
            {"ts": 0, "tid": 50, "event": "written", "reason": "sync"},
        ]
    }
    with make_trace(tmp_path / "t", content) as trace:
        reasons = tables.records(tables.writeback_reasons(trace))
        rows = tables.records(tables.writeback_intervals(trace))
    assert {r["between"] for r in rows} == {"passes"}  # the ends of wakes were not recorded
    intervals = {r["reason"]: r for r in rows}
    assert [(r["reason"], r["writebacks"], r["ratio"], r["wakes"]) for r in reasons] == [
        ("periodic", 4, 0.8, None),
        ("background", 1, 0.2, None),
    ]
    assert intervals.keys() == {"all", "periodic"}
    every = intervals["all"]  # 2, 1 and 5 s on 254:0; one start alone on 7:0
    assert (every["intervals"], every["min_s"], every["p50_s"], every["max_s"]) == (3, 1, 2, 5)
    assert every["mean_s"] == pytest.approx(8 / 3)
    assert every["std_s"] == pytest.approx(2.0817, abs=1e-4)
    assert (intervals["periodic"]["intervals"], intervals["periodic"]["mean_s"]) == (2, 4)


def test_passes_of_one_wake_are_one_write_back(tmp_path):
    """Two devices, served by turns; a sync amid a wake; a loss; equal times."""

    def row(s, event, reason=None, bdi=None, tid=50, **more):
        return {"ts": int(s * 1e9), "tid": tid, "event": event, "reason": reason, "bdi": bdi} | more

    one, two = "254:0", "7:0"
    rows = [
        row(1, "start", "periodic", one), row(1, "written", "periodic", one),
        row(1.5, "start", "periodic", two, tid=51),
        row(2, "queue", "sync", one, tid=9),  # amid the wake, so the worker goes on with it
        row(2, "start", "periodic", one), row(2, "pages_written"),
        row(2, "exec", "sync", one), row(2, "start", "sync", one), row(3, "pages_written"),
        row(3.5, "pages_written", tid=51),
        row(4, "start", "background", two), row(4, "pages_written"),  # the same thread
        row(5, "queue", "sync", one, tid=9),  # the worker is asleep: it wakes
        row(5, "exec", "sync", one), row(5, "start", "sync", one), row(5, "pages_written"),
        row(9, "start", "periodic", one), row(9, "written", "periodic", one),
        # its end is lost, and others of either device, maybe
        row(20, "start", "periodic", one), row(21, "pages_written"),
        row(22, "start", "periodic", one), row(22, "start", "periodic", one),  # it still runs
    ]  # fmt: skip
    loss = [{"stream": "machine.cpu0", "cpu": 0, "from": 10 * 10**9, "to": 19 * 10**9}]
    with make_trace(tmp_path / "t", {"writeback": rows, "loss": loss}) as trace:
        reasons = {r["reason"]: r for r in tables.records(tables.writeback_reasons(trace))}
        found = tables.records(tables.writeback_intervals(trace))
        of_two = tables.records(tables.writeback_intervals(trace, two))
    assert {reason: (r["writebacks"], r["wakes"]) for reason, r in reasons.items()} == {
        "periodic": (7, 5), "sync": (2, 2), "background": (1, 1),
    }  # fmt: skip
    by = {(r["between"], r["reason"]): (r["intervals"], r["mean_s"]) for r in found}
    # Wakes of the one: 1 5 9 | 20 22; of the other: 1.5 4. Passes: 1 2 2 5 9 | 20 22 22, 1.5 4.
    assert by == {
        ("wakes", "all"): (4, pytest.approx((4 + 4 + 2 + 2.5) / 4)),
        ("wakes", "periodic"): (2, 5), ("wakes", "sync"): (1, 3),
        ("passes", "all"): (7, pytest.approx((1 + 0 + 3 + 4 + 2 + 0 + 2.5) / 7)),
        ("passes", "periodic"): (4, pytest.approx((1 + 7 + 2 + 0) / 4)), ("passes", "sync"): (1, 3),
    }  # fmt: skip
    assert [r["between"] for r in found] == ["wakes"] * 3 + ["passes"] * 3
    assert [(r["between"], r["reason"], r["mean_s"]) for r in of_two] == [
        ("wakes", "all", 2.5), ("passes", "all", 2.5),
    ]  # fmt: skip


def test_phases_have_counts_numbers_and_costs(tmp_path):
    def phase(start, end, name, epoch=None, step=None, tid=JOB):
        return {
            "start": start,
            "end": end,
            "pid": JOB,
            "tid": tid,
            "name": name,
            "epoch": epoch,
            "step": step,
        }

    content = {
        "phases": [
            phase(0, 1000, "train"),
            phase(100, 200, "step", 0, 0),
            phase(110, 150, "forward", 0, 0),
            phase(300, 400, "step", 0, 1),
            phase(500, 600, "step", 1, 2),
            phase(2000, None, "inference"),
        ],
        "syscalls": [
            {"ts": ts, "tid": JOB, "nr": 0, "name": "read", "dur_ns": 10**6}
            for ts in (50, 120, 130, 390, 1500)
        ]
        + [{"ts": 120, "tid": 99, "nr": 0, "name": "read", "dur_ns": 10**9}],
        "page_faults": [{"ts": 555, "tid": JOB, "kind": "minor", "user": True}],
        "block": [
            {"ts": 320, "tid": 50, "event": "bio_queue", "sector": 8, "nr_sector": 16, "rwbs": "W"}
        ],
    }
    with make_trace(tmp_path / "t", content) as trace:
        found = {r["name"]: r for r in tables.records(tables.phases(trace))}
    assert list(found) == ["train", "step", "forward", "inference"]
    train, step = found["train"], found["step"]
    assert (train["count"], train["epochs"], train["steps"]) == (1, 2, 3)
    assert (step["count"], step["epochs"], step["steps"]) == (3, 2, 3)
    assert (train["calls"], step["calls"], found["forward"]["calls"]) == (4, 3, 2)
    assert train["call_s"] == pytest.approx(4e-3)
    assert (train["faults"], step["faults"], found["forward"]["faults"]) == (1, 1, 0)
    assert (train["written_pages"], step["written_pages"]) == (2, 2)
    assert (found["inference"]["unfinished"], found["inference"]["total_s"]) == (1, None)


def test_epochs_and_steps_of_each_fold_count(tmp_path):
    """Each of three folds begins its epochs and steps at 0 again.

    Two threads of the job mark each epoch. Another job trains once, at the same time; its first
    step was marked before its epoch.
    """
    rows = [{"name": "train", "start": 0, "end": 100, "pid": JOB, "tid": JOB}]
    for fold, epoch in product(range(3), range(2)):
        begin, mark = 20 * fold + 10 * epoch, {"pid": JOB, "tid": JOB, "epoch": epoch}
        rows.append({**mark, "name": "epoch", "start": begin, "end": begin + 9})
        rows.append({**mark, "name": "epoch", "start": begin + 1, "end": begin + 8, "tid": 60})
        for n in (0, 1):
            times = {"start": begin + 2 + n, "end": begin + 3 + n}
            rows.append({**mark, **times, "name": "step", "step": 2 * epoch + n})
    other = {"pid": 80, "tid": 80, "epoch": 0}
    rows += [
        {**other, "name": "step", "step": 0, "start": 1, "end": 3},
        {**other, "name": "epoch", "start": 4, "end": 90},
        {**other, "name": "step", "step": 1, "start": 5, "end": 50},
    ]
    with make_trace(tmp_path / "t", {"phases": rows}) as trace:
        found = {
            row["name"]: (row["count"], row["processes"], row["epochs"], row["steps"])
            for row in tables.records(tables.phases(trace))
        }
    assert found == {
        "train": (1, 1, 6, 12),
        "epoch": (13, 2, 6 + 1, 12 + 1),
        "step": (14, 2, 6 + 1, 12 + 2),
    }


def test_costs_that_were_not_recorded_are_null(tmp_path):
    content = {"phases": [{"start": 0, "end": 9, "pid": 1, "tid": 1, "name": "train"}]}
    with make_trace(tmp_path / "t", content) as trace:
        (row,) = tables.records(tables.phases(trace))
    assert (row["calls"], row["faults"], row["written_pages"]) == (None, None, None)


def test_a_report_of_an_empty_trace_is_valid_json(tmp_path):
    from tracer.probes.catalogue import TABLES
    from tracer.store.trace import dump

    with make_trace(tmp_path / "t", {name: [] for name in TABLES}) as trace:
        found = {n: tables.records(f) for n, f in tables.all_tables(trace).items()}
    assert json.loads(dump(found))["syscalls"] == []
    assert found.keys() == tables.TABLES.keys()


def test_pages_of_phases_that_overlap_are_counted_once_and_without_the_recorders(tmp_path):
    content = {
        "phases": [
            {"start": 0, "end": 100, "pid": pid, "tid": pid, "name": "train"} for pid in range(4)
        ]
        + [{"start": 500, "end": 600, "pid": 1, "tid": 1, "name": "train"}],
        "block": [
            {"ts": ts, "tid": 50, "event": "bio_queue", "dev": "254:0", "sector": 0,
             "nr_sector": 80, "rwbs": "W"}
            for ts in (50, 300, 550)
        ],
        "writeback": [{"ts": 520, "tid": 50, "event": "start", "reason": "sync"}],
        "inode_writeback": [{"ts": 530, "tid": 50, "event": "start", "dev": "254:0", "ino": 9}],
    }  # fmt: skip
    with make_trace(tmp_path / "t", content, own_files={"254:0": [9]}) as trace:
        (row,) = tables.records(tables.phases(trace))
    assert (row["count"], row["written_pages"]) == (5, 10)


def test_a_phase_of_a_thread_that_the_kernel_does_not_know_has_no_costs(tmp_path):
    """A process in a container marks the ids of its own namespace."""
    content = {
        "processes": PROCESSES,
        "phases": [
            {"start": 0, "end": 100, "pid": 1, "tid": 1, "name": "inside"},
            {"start": 0, "end": 100, "pid": JOB, "tid": JOB, "name": "outside"},
        ],
        "syscalls": [{"ts": 5, "tid": JOB, "nr": 0, "name": "read", "dur_ns": 1}],
        "page_faults": [],
    }
    with make_trace(tmp_path / "t", content) as trace:
        found = {r["name"]: (r["calls"], r["faults"]) for r in tables.records(tables.phases(trace))}
    assert found == {"inside": (None, None), "outside": (1, 0)}


def test_a_target_without_a_command_has_no_colon():
    assert target_line({"role": "target", "name": "machine"}) == "target machine"
    job = {"role": "target", "name": "job", "command": ["python", "train.py"]}
    assert target_line(job) == "target job: python train.py"


def test_a_long_command_of_a_target_is_cut_with_an_ellipsis():
    line = target_line({"role": "target", "name": "job", "command": ["python", "x" * 200]})
    assert len(line) == 160 and line.endswith("xx…")
