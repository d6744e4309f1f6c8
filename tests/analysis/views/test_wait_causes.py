"""The rules of waits are asked once for each case: the waits are those of rules asked for each."""

import random

import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.waiting import sleeps, wait_causes
from tracer.analysis.views.waiting.waits import waits

CALLS = ("read", "futex", "fsync", "poll", "umount2")
STATES = ("S", "D", "R", "new", None)
THREADS = range(1, 7)
END = 8000


@pytest.fixture(scope="module")
def tables():
    """Threads that are off the CPU for many causes, each of which comes again and again."""
    draw = random.Random(11)
    off_cpu, calls = [], []
    for tid in THREADS:
        now = draw.randint(1, 9)
        while now < END:
            length = draw.randint(4, 20)
            delay = draw.choice((0, 0, 2, length))
            waker = draw.choice((None, 0, 9, 1))
            off_cpu.append(
                {"ts": now, "dur_ns": length, "pid": 1, "tid": tid, "state": draw.choice(STATES),
                 "wake_ns": draw.choice((None, now + length - delay)), "waker_tid": waker,
                 "interrupt": draw.choice((None, True, False)), "run_delay_ns": delay, "cpu": 0,
                 "ran_cpu": draw.choice((0, 0, 1)), "ran_tid": draw.choice((None, 0, *THREADS))}
            )  # fmt: skip
            if draw.random() < 0.8:
                calls.append(
                    {"ts": now - 1, "tid": tid, "pid": 1, "name": draw.choice(CALLS),
                     "dur_ns": length + 2, "ret": draw.choice((0, 1))}
                )  # fmt: skip
            now += length + draw.randint(2, 9)
    off_cpu.sort(key=lambda row: row["ts"] + row["dur_ns"])
    calls.sort(key=lambda row: row["ts"])
    lives = [{"pid": 1, "tid": tid, "target": "job", "role": "target"} for tid in THREADS]
    lives.append({"pid": 9, "tid": 9, "comm": "jbd2/vda-8", "role": "journal"})
    return {"off_cpu": off_cpu, "syscalls": calls, "processes": lives}


TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": 1}]


def rows_of(folder, tables):
    with make_trace(folder, tables, targets=TARGETS) as trace:
        waits(trace)
        return sorted(trace.rows("FROM waits"), key=repr)


def test_waits_of_many_batches_are_those_of_rules_that_are_asked_for_each_row(
    tmp_path, monkeypatch, tables
):
    asked = []
    ask = wait_causes.Causes._ask

    def counted(self, rows):
        asked.append(rows.num_rows)
        ask(self, rows)

    monkeypatch.setattr(wait_causes.Causes, "_ask", counted)
    monkeypatch.setattr(wait_causes, "_MOST_CASES", 1)
    each = rows_of(tmp_path / "each", tables)
    assert sum(asked) == len(tables["off_cpu"])
    assert len({(row[4], row[7], row[13]) for row in each}) > 10

    monkeypatch.undo()
    monkeypatch.setattr(wait_causes.Causes, "_ask", counted)
    monkeypatch.setattr(sleeps, "_BATCH", 64)
    asked.clear()
    assert rows_of(tmp_path / "once", tables) == each
    assert len(asked) > 1 and sum(asked) < len(tables["off_cpu"]) * 0.9
    once = sum(asked)

    monkeypatch.setattr(wait_causes, "_MOST_KEPT", 100)
    asked.clear()
    assert rows_of(tmp_path / "forgotten", tables) == each
    assert sum(asked) > once
