"""Waits for sockets, file locks, FIFOs and libaio, after losses, and in parts, are as drawn."""

from collections import defaultdict
from typing import Any

import pytest

from tests.oracles.drawing import batches, rows_of_view
from tests.oracles.drawn_new_waits import CAUSES, TABLES, Case
from tests.oracles.new_waits import Sleep, allowed, owner
from tracer.analysis.views.catalogue import VIEWS

pytestmark = pytest.mark.slow

CASES_OF_A_TRACE = 40

Row = dict[str, Any]


def end_of(row: Row) -> int:
    return int(row["ts"] + (1 << 40 if row["dur_ns"] is None else row["dur_ns"]))


def made(drawn: list[Case]) -> tuple[dict[str, list[Row]], list[Row]]:
    """Returns the tables of some cases in the order of a recording, and their disks."""
    tables: dict[str, list[Row]] = {name: [] for name in TABLES}
    disks = []
    for number, case in enumerate(drawn):
        for name, rows in case.tables.items():
            tables[name] += rows
        disks += [{"dev": dev, "name": f"sd{n}c{number}"} for n, dev in enumerate(case.disks)]
    for name in ("block", "loss"):
        tables[name].sort(key=lambda row: row["ts" if name == "block" else "from"])
    for name in ("syscalls", "off_cpu"):
        tables[name].sort(key=end_of)
    return tables, disks


TARGETS = [{"name": n, "role": "target", "kind": "pid", "pid": 1} for n in ("a", "b")]


def cases() -> list[tuple[Case, list[tuple[Sleep, list[Row]]]]]:
    """Returns each case, its sleeps, and the view's rows of each sleep in order."""
    found = []
    for each in batches(CASES_OF_A_TRACE, 200):
        drawn = [Case(number, numbers) for number, numbers in enumerate(each)]
        for case in drawn:
            case.run()
        tables, disks = made(drawn)
        rows = rows_of_view(VIEWS["waits"], tables, disks=disks, targets=TARGETS)
        of_thread = defaultdict(list)
        for row in rows:
            of_thread[row["tid"]].append(row)
        for case in drawn:
            found.append((case, placed(case, of_thread)))
        made_of = [len(told) for _, sleeps in found[-len(drawn) :] for _, told in sleeps]
        assert len(rows) == sum(made_of)
    return found


def placed(case: Case, of_thread: dict[int, list[Row]]) -> list[tuple[Sleep, list[Row]]]:
    """Returns each sleep with the rows that begin in it (no two sleeps of a thread touch)."""
    found = []
    for sleep in case.sleeps:
        tid, begin = sleep.row["tid"], sleep.row["ts"]
        end = begin if sleep.row["dur_ns"] is None else sleep.end
        told = [row for row in of_thread[tid] if begin <= row["ts"] <= end]
        found.append((sleep, sorted(told, key=lambda row: (row["ts"], row["dur_ns"] or 0))))
    return found


@pytest.fixture(scope="module")
def told():
    return cases()


def parts(sleep: Sleep, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Returns the rows before and after the wake-up; those of no length are left out."""
    rows = [row for row in rows if row["dur_ns"] != 0]
    woken = sleep.row["wake_ns"] if sleep.row["wake_ns"] is not None else sleep.end
    if sleep.row["state"] in ("R", "R+"):
        woken = sleep.row["ts"]
    return [r for r in rows if r["ts"] < woken], [r for r in rows if r["ts"] >= woken]


def test_the_waits_of_a_sleep_adjoin_and_add_up_to_it(told):
    for _, sleeps in told:
        for sleep, rows in sleeps:
            if sleep.row["dur_ns"] is None:
                assert [row["dur_ns"] for row in rows] == [None], (sleep, rows)
                continue
            now = sleep.row["ts"]
            for row in rows:
                assert row["ts"] == now, (sleep, rows)
                now += row["dur_ns"]
            assert now == sleep.end, (sleep, rows)


def test_a_thread_waits_for_a_cpu_since_it_was_woken(told):
    for _, sleeps in told:
        for sleep, rows in sleeps:
            if sleep.row["dur_ns"] is None:
                continue
            before, after = parts(sleep, rows)
            assert all(row["kind"] != "cpu" for row in before), (sleep, rows)
            assert all(row["kind"] == "cpu" for row in after), (sleep, rows)
            assert sum(row["dur_ns"] for row in after) == (sleep.row["run_delay_ns"] or 0)


def test_each_sleep_has_the_kind_the_waker_and_the_certainty_of_its_cause(told):
    seen = defaultdict(int)
    for case, sleeps in told:
        for sleep, rows in sleeps:
            if sleep.cause is None or sleep.row["dur_ns"] is None:
                continue
            answers = allowed(sleep, case.tables)
            for row in parts(sleep, rows)[0]:
                found = row["kind"], row["by_tid"], row["certainty"]
                assert found in answers, (sleep, found, answers, case.tables["loss"])
                assert row["call"] == sleep.call["name"], (sleep, row)
                if sleep.device and sleep.title != "io_uring":
                    assert row["detail"] and sleep.device in row["detail"], (sleep, row)
                seen[sleep.title, row["by_tid"] is not None, row["certainty"]] += 1
    assert {title for title, *_ in seen} == CAUSES.keys() | {"openat"}
    assert seen["receive", True, "inferred"] > 50, seen
    assert seen["futex", True, "inferred"] + seen["flock", True, "inferred"] > 0, seen


def test_the_thread_that_is_waited_for_had_the_number_then(told):
    seen = set()
    for case, sleeps in told:
        for sleep, rows in sleeps:
            if sleep.cause is None or sleep.row["wake_ns"] is None:
                continue
            for row in parts(sleep, rows)[0]:
                if row["by_tid"] is None:
                    assert row["by_pid"] is row["by_comm"] is row["by_target"] is None, row
                    continue
                had = owner(case.tables, row["by_tid"], sleep.row["wake_ns"])
                assert had is not None, (sleep, row)
                expected = {"pid": had["pid"], "comm": had["comm"], "target": had["target"]}
                assert {name: row[f"by_{name}"] for name in expected} == expected, (sleep, row)
                assert row["by_container"] == had["container_id"], (sleep, row)
                seen.add((row["by_tid"] - case.base, had["target"], sleep.row["interrupt"]))
    assert {(5, "b", True), (5, None, False)} <= seen, seen


JOB, WORKER, TENANT, KERNELS = 7, 8, 30, 16
PROCESSES = [
    {"pid": JOB, "tid": JOB, "ppid": 1, "role": "target", "target": "a", "comm": "python"},
    {"pid": WORKER, "tid": WORKER, "ppid": JOB, "role": "child", "target": "a", "comm": "worker"},
    {"pid": TENANT, "tid": TENANT, "ppid": 1, "role": "other", "comm": "nginx"},
    {"pid": KERNELS, "tid": KERNELS, "ppid": 2, "role": "other", "comm": "kworker/0:1"},
]


def call(tid: int, name: str, ts: int, dur: int | None, ret: int = 1) -> Row:
    row = {"ts": ts, "pid": tid, "tid": tid, "name": name, "dur_ns": dur}
    return row | {"ret": None if dur is None else ret}


def off(ts: int, dur: int, waker: int | None, interrupt: bool | None = False, **more: Any) -> Row:
    """Returns a sleep of the job, which ends as soon as it is woken."""
    row = {"ts": ts, "dur_ns": dur, "pid": JOB, "tid": JOB, "state": "S", "run_delay_ns": 0}
    row |= {"waker_tid": waker, "waker_pid": waker, "interrupt": interrupt, "cpu": 0, "ran_cpu": 0}
    return row | {"wake_ns": None if waker is None else ts + dur, "ran_tid": 0} | more


def answers(view: str = "waits", **tables: list[Row]) -> list[tuple[Any, ...]]:
    """Returns kind, by_tid and certainty of the rows in order of time."""
    tables = {"processes": PROCESSES, "loss": [], **tables}
    disks = [{"dev": "8:0", "name": "sda"}]
    rows = rows_of_view(VIEWS[view], tables, targets=TARGETS[:1], disks=disks)
    rows = sorted((row for row in rows if row["dur_ns"] != 0), key=lambda row: row["ts"])
    return [(row["kind"], row["by_tid"], row["certainty"]) for row in rows]


GAP = {"stream": "ftrace-target", "cpu": 0, "from": 120, "to": 130, "count": 3, "cause": "overrun"}


@pytest.mark.parametrize(
    ("certainty", "took", "gap"),
    [
        ("inferred", None, {}),
        ("inferred", None, {"count": None, "cpu": -1}),
        ("inferred", None, {"from": None}),
        ("inferred", None, {"cpu": 1}),  # the thread may have been there
        ("inferred", None, {"from": 90}),
        ("inferred", None, {"from": 125, "to": 125, "stream": "perf-target-cpu0"}),
        ("exact", 400, {}),
        ("exact", None, None),
        ("exact", None, {"from": 50, "to": 60}),
        ("exact", None, {"from": None, "to": 60}),
        ("exact", None, {"from": 460, "to": None}),
        ("exact", None, {"from": 460, "to": 470}),
        *(("exact", None, {"stream": name}) for name in ("ftrace-machine", "files", "samples")),
    ],
)
def test_after_a_loss_a_wait_is_exact_only_if_its_call_is_known(certainty, took, gap):
    """A wait for a CPU does not follow from the call."""
    waits = [
        ("futex", "lock", WORKER), ("flock", "lock", TENANT), ("recvfrom", "ipc", WORKER),
        ("poll", "ipc", KERNELS), ("wait4", "child", WORKER),
    ]  # fmt: skip
    tables: dict[str, list[Row]] = {"processes": [], "syscalls": [], "off_cpu": []}
    expected = []
    for tid, (name, kind, waker) in enumerate(waits, start=100):
        thread = {"pid": JOB, "tid": tid}
        tables["processes"].append(PROCESSES[0] | thread)
        tables["syscalls"].append(call(tid, name, 100, took) | thread)
        tables["off_cpu"] += [
            off(200, 50, waker, **thread),
            off(300, 20, None, None, **thread, state="R+", run_delay_ns=20, ran_tid=TENANT),
            off(400, 50, waker, **thread),
        ]
        expected += [(kind, waker, certainty)] * 2 + [("cpu", TENANT, "inferred")]
    tables["processes"] += PROCESSES
    tables["off_cpu"].sort(key=end_of)
    found = answers(loss=[] if gap is None else [GAP | gap], **tables)
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    ("waker", "interrupt"), [(0, True), (WORKER, True), (KERNELS, False), (0, None), (None, None)]
)
@pytest.mark.parametrize("name", ["io_getevents", "io_uring_enter"])
def test_transfers_that_were_queued_in_a_call_are_waits_for_a_disk(name, waker, interrupt):
    """A thread of the kernel completes those of dm-crypt and btrfs."""
    read = {"ts": 110, "pid": JOB, "tid": JOB, "event": "bio_queue", "dev": "8:0", "rwbs": "R"}
    found = answers(
        syscalls=[call(JOB, name, 100, 200), call(WORKER, "sendto", 240, 20)],
        block=[read | {"sector": 8, "nr_sector": 8}],
        off_cpu=[off(200, 50, waker, interrupt)],
    )
    by = waker if interrupt is False else None
    assert found == [("disk", by, "inferred")]


@pytest.mark.parametrize(
    ("last", "took", "gone"),
    [("exit_group", None, 260), ("exit_group", None, 240), ("read", 5, 240)],
    ids=["before its exit is logged", "after it", "killed"],
)
def test_a_peer_that_exits_is_waited_for(last, took, gone):
    """The kernel logs the exit of a thread before it closes its files."""
    processes = [row | ({"end_ns": gone} if row["pid"] == WORKER else {}) for row in PROCESSES]
    found = answers(
        processes=processes,
        syscalls=[call(JOB, "recvfrom", 100, 200, 0), call(WORKER, last, 230, took)],
        off_cpu=[off(200, 50, WORKER, True)],
    )
    assert found == [("ipc", WORKER, "inferred")]


@pytest.mark.parametrize("sends", [True, False])
def test_the_critical_path_goes_on_in_the_thread_that_sends(sends):
    """The worker computes meanwhile, and the step depends on that."""
    step = {"start": 100, "end": 300, "pid": JOB, "tid": JOB, "name": "step", "epoch": 0, "step": 0}
    name = "sendto" if sends else "getpid"
    tables = {
        "processes": PROCESSES, "phases": [step], "loss": [],
        "syscalls": [call(JOB, "recvfrom", 140, 120), call(WORKER, name, 240, 20)],
        "off_cpu": [off(150, 100, WORKER, True)],
    }  # fmt: skip
    rows = rows_of_view(VIEWS["critical_path"], tables, targets=TARGETS[:1])
    path = [(row["ts"], row["dur_ns"], row["tid"], row["kind"]) for row in rows]
    middle = (WORKER, "run") if sends else (JOB, "ipc")
    assert sorted(path) == [
        (100, 50, JOB, "run"), (150, 100, *middle), (250, 50, JOB, "run")
    ]  # fmt: skip


@pytest.mark.parametrize("tables", [{}, {"syscalls": []}, {"syscalls": [], "block": []}])
def test_without_calls_nothing_tells_for_what_a_thread_waits(tables):
    assert answers(off_cpu=[], **tables) == []
    found = answers(off_cpu=[off(200, 50, WORKER, True), off(300, 50, WORKER)], **tables)
    assert [(kind, certainty) for kind, _, certainty in found] == [("other", "unknown")] * 2
