"""The waits of a thread never overlap, and those of a time off the CPU add up to it."""

import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from tests.oracles.drawing import batches, rows_of_view, seeds
from tests.oracles.drawn_commits import SECOND
from tests.oracles.drawn_commits import TABLES as OF_COMMITS
from tests.oracles.drawn_commits import Case as Commits
from tests.oracles.test_cpu_turns_oracle import LEFT_OUT, TICK, drawn, in_ns
from tracer.analysis.views.catalogue import VIEWS

pytestmark = pytest.mark.slow

JOURNAL, FLUSHER = 500, 501
STEPS = ("commit_start", "commit_flushing", "commit_logging", "commit_end")
CALLS = ("fsync", "fsync", "read", "write", "futex", "flock", "sendto", "io_getevents", "openat")
AFTER_WAKING = {"cpu", "throttled"}

Row = dict[str, Any]


def end_of(row: Row) -> int:
    return int(row["ts"] + (1 << 60 if row["dur_ns"] is None else row["dur_ns"]))


def woken_at(row: Row) -> int:
    """Returns since when a thread could run; the end, if it is not known."""
    return int(end_of(row) - (row.get("run_delay_ns") or 0))


def compared(waits: list[Row], off_cpu: list[Row]) -> Counter[str]:
    """Compares waits with the times off the CPU; returns the sums, and the longest list of parts.

    A time whose end is not known has one wait, and so has no other one of no length.
    """
    of_thread, sums = defaultdict(list), Counter()
    for row in waits:
        of_thread[row["tid"]].append(row)
    for tid, rows in of_thread.items():
        rows.sort(key=lambda row: (row["ts"], row["dur_ns"] is None, row["dur_ns"]))
        mine = sorted((row for row in off_cpu if row["tid"] == tid), key=lambda row: row["ts"])
        unended = [row["ts"] for row in mine if row["dur_ns"] is None]
        assert [row["ts"] for row in rows if row["dur_ns"] is None] == unended, tid
        rows = [row for row in rows if row["dur_ns"]]
        expected = [row for row in mine if row["dur_ns"]]
        for row in expected:
            now, parts = row["ts"], []
            while now < end_of(row):
                assert rows, (row, now)
                part = rows.pop(0)
                assert part["ts"] == now, (row, part)
                now += part["dur_ns"]
                parts.append(part)
            assert now == end_of(row), (row, parts)
            of_cpu = sum(part["dur_ns"] for part in parts if part["kind"] in AFTER_WAKING)
            could_run = end_of(row) - woken_at(row)
            assert of_cpu == could_run, (row, parts)
            assert all(
                (part["kind"] in AFTER_WAKING) == (part["ts"] >= woken_at(row)) for part in parts
            ), (row, parts)
            for part in parts:
                sums[part["kind"]] += part["dur_ns"]
            sums["most"] = max(sums["most"], len(parts))
            sums["mixed"] += len({part["kind"] for part in parts}) > 1
        assert not rows, (tid, rows)
    threads = {row["tid"] for row in off_cpu}
    assert of_thread.keys() == threads
    return sums


def decorated(worlds: list[Any], unit: int, numbers: random.Random) -> dict[str, list[Row]]:
    """Returns the tables of threads that sleep in calls, of which a journal's thread ends many."""
    tables: dict[str, list[Row]] = {
        "processes": [
            {"pid": one.number, "tid": one.number, "ppid": 1, "comm": one.name}
            | {"role": "target" if one.recorded else "other", "start_ns": one.born}
            | {"target": world.target if one.recorded else None, "end_ns": one.gone}
            for world in worlds
            for one in world.threads
        ],
        "samples": [row for world in worlds for row in world.samples],
        "loss": [row for world in worlds for row in world.loss],
    }
    for number, role in ((JOURNAL, "journal"), (FLUSHER, "flusher")):
        row = {"pid": number, "tid": number, "ppid": 2, "role": role, "comm": role}
        tables["processes"].append(row)
    off_cpu, syscalls, block, reclaim = [], [], [], []
    for row in (row for world in worlds for row in world.off_cpu):
        row = {name: value for name, value in row.items() if name not in LEFT_OUT}
        if row["state"] == "S" and numbers.random() < 0.9:
            row["state"] = numbers.choice(["D", "D", "S"])
            if row.get("wake_ns") is not None:
                row["waker_tid"] = numbers.choice([JOURNAL, JOURNAL, FLUSHER, 0, 1001, 2001])
                row["interrupt"] = row["waker_tid"] == 0 or numbers.random() < 0.1
            mine = {"tid": row["tid"], "pid": row.get("pid")}
            if numbers.random() < 0.8:
                took = None if numbers.random() < 0.1 else row["dur_ns"]
                call = {"ts": row["ts"], "dur_ns": took, "name": numbers.choice(CALLS)}
                syscalls.append(mine | call)
                more = {"event": "bio_queue", "dev": "8:0", "sector": 8, "nr_sector": 8}
                more |= {"ts": row["ts"], "rwbs": numbers.choice(["R", "FF", "WS"])}
                block.append(mine | more)
            elif numbers.random() < 0.3 and row["dur_ns"]:
                reclaim.append(mine | {"ts": row["ts"], "event": "direct_begin"})
                reclaim.append(mine | {"ts": end_of(row), "event": "direct_end"})
        off_cpu.append(row)
    tables |= {"off_cpu": sorted(off_cpu, key=end_of), "syscalls": sorted(syscalls, key=end_of)}
    journal, now, last = [], 0, max(world.end for world in worlds)
    while now < last:
        for event in STEPS:
            now += numbers.choice([1, 2, 10, 30])
            journal.append(
                {"ts": now, "tid": JOURNAL, "pid": JOURNAL, "event": event, "dev": "8:0"}
            )
    tables |= {"journal": journal}
    tables |= {"block": block, "reclaim": reclaim}
    for name in ("block", "reclaim"):
        tables[name].sort(key=lambda row: row["ts"])
    return {name: [in_ns(row, unit) for row in rows] for name, rows in tables.items()}


@pytest.mark.parametrize(
    ("seed", "unit"), [(seed, unit) for seed in seeds(1) for unit in (1, TICK)]
)
def test_parts_for_a_journal_a_cpu_and_a_quota_add_up(seed, unit):
    worlds = drawn(seed, unit)
    tables = decorated(worlds, unit, random.Random(seed))
    targets = [
        {"name": world.target, "role": "target", "kind": "pid", "pid": world.base}
        for world in worlds
    ]
    rows = rows_of_view(VIEWS["waits"], tables, targets=targets)
    sums = compared(rows, tables["off_cpu"])
    assert {"sync", "cpu", "ipc", "lock", "disk", "reclaim", "other"} <= sums.keys(), sums
    assert sums["most"] > 8 and sums["mixed"] > 100
    assert (unit > 1) == bool(sums["throttled"])


def test_parts_for_the_owners_of_data_add_up():
    for cases in batches(100):
        made = [Commits(number, numbers) for number, numbers in enumerate(cases)]
        clock = {"name": "mono", "start_ns": SECOND // 2, "end_ns": 1000 * SECOND}
        manifest: dict[str, Any] = {"disks": [], "mounts": [], "btrfs": [], "clock": clock}
        tables: dict[str, list[Row]] = {name: [] for name in OF_COMMITS}
        for one in made:
            one.run()
            told = one.told()
            for name in one.manifest:
                manifest[name] += one.manifest[name]
            for name in OF_COMMITS:
                tables[name] += [one.as_numbered(row, "pid", "tid") for row in told[name]]
        rows = rows_of_view(VIEWS["waits"], tables, **manifest)
        sums = compared(rows, tables["off_cpu"])
        assert sums["most"] > 4 and sums["cpu"] and sums["sync"], sums
