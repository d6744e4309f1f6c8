"""The view `write_waits` and the naive one agree on jobs and disks drawn at random."""

import random

import pytest

from tests.oracles.drawing import batches, rows_of_view
from tests.oracles.write_waits import joined, write_waits_of
from tracer.analysis.views.catalogue import VIEWS

pytestmark = pytest.mark.slow

TENANTS = 10
"""Cases in a trace: the jobs of all have one machine, so that each one's writes are everybody's."""
TICK = 10_000
LENGTH = 400
NAMES = ("fsync", "write", "close", "getppid", "openat", "futex", "read", "ftruncate", "umount2")


def case_of(tables: dict, case: int, numbers: random.Random) -> None:
    dev = f"8:{16 * case}"
    for place in range(numbers.choice([0, 1, 1, 2])):
        begin = numbers.randrange(LENGTH)
        events = [("bio_queue", begin), ("issue", begin + numbers.choice([0, 1, 9]))]
        if numbers.random() < 0.9:
            events.append(("complete", events[-1][1] + numbers.choice([1, 5, 30])))
        for event, tick in events:
            tables["block"].append(
                {"ts": tick * TICK, "event": event, "dev": dev, "sector": 1000 * place + 8,
                 "nr_sector": 8, "rwbs": "W", "pid": 3, "tid": 3, "comm": "kworker"}
            )  # fmt: skip
    for thread in range(numbers.choice([1, 2])):
        tid = 100 + 10 * case + thread
        target = numbers.choice([f"job{case}", f"job{case}", None])
        tables["processes"].append(
            {"pid": tid, "tid": tid, "comm": "python", "target": target,
             "role": "target" if target else "other",
             "start_ns": numbers.choice([None, 0]), "end_ns": None}
        )  # fmt: skip
        now, free = numbers.randrange(LENGTH // 4), set(range(1, LENGTH))
        for _ in range(numbers.choice([0, 1, 3, 8])):
            now += numbers.choice([0, 1, 3, 40])
            took = numbers.choice([0, 1, 5, 9, 10, 11, 60, None])
            tables["syscalls"].append(
                {"ts": now * TICK, "pid": tid, "tid": tid, "nr": 1, "ret": 0,
                 "name": numbers.choice(NAMES), "dur_ns": None if took is None else took * TICK}
            )  # fmt: skip
            free -= set(range(now + 1, now + (took or 0)))
            now += (numbers.choice([1, 5]) if took is None else took) + 1
        if numbers.random() < 0.2:  # another thread gets its number, in none of its calls
            other = {"target": f"job{case}" if target is None else None, "end_ns": None}
            other |= {"start_ns": numbers.choice(sorted(free)) * TICK, "comm": "sh"}
            other |= {"role": "other" if target else "target"}
            tables["processes"].append(tables["processes"][-1] | other)
        if numbers.random() < 0.2:
            tables["processes"][-1]["end_ns"] = (now + 3 + LENGTH) * TICK
        for _ in range(numbers.choice([0, 0, 1, 4])):
            tables["page_faults"].append(
                {
                    "ts": numbers.randrange(LENGTH) * TICK,
                    "pid": tid,
                    "tid": tid,
                    "address": 4096,
                    "ip": 1,
                    "user": True,
                    "kind": numbers.choice(["minor", "major"]),
                    "access": numbers.choice(["read", "write", None]),
                    "file": numbers.choice([None, "/data/a"]),
                }
            )
        if numbers.random() < 0.3:
            tables["dirty"].append(
                {"ts": numbers.randrange(LENGTH) * TICK, "pid": tid, "tid": tid,
                 "event": "balance_dirty_pages", "pause_ns": numbers.choice([-1, 0, 12]) * TICK}
            )  # fmt: skip
    if numbers.random() < 0.05:
        begin = numbers.randrange(LENGTH)
        tables["loss"].append(
            {"stream": "machine-cpu0", "cpu": 0, "cause": "buffer overrun",
             "from": begin * TICK, "to": (begin + numbers.randrange(9)) * TICK, "count": 3}
        )  # fmt: skip


def drawn(cases: list[random.Random]) -> dict:
    tables: dict[str, list] = {
        name: [] for name in ("processes", "syscalls", "dirty", "block", "page_faults", "loss")
    }
    for case, numbers in enumerate(cases):
        case_of(tables, case, numbers)
    for name in ("syscalls", "dirty", "block", "page_faults"):
        tables[name].sort(key=lambda row: row["ts"])
    return tables


def test_the_times_in_which_jobs_may_have_waited_are_those_of_the_oracle():
    ended = 2 * LENGTH * TICK
    clock = {"name": "mono", "start_ns": 0, "end_ns": ended}
    for cases in batches(TENANTS):
        tables = drawn(cases)
        rows = rows_of_view(VIEWS["write_waits"], tables, clock=clock)
        found: dict = {}
        for row in rows:
            span = (row["ts"], row["ts"] + row["dur_ns"])
            found.setdefault((row["target"], row["kind"]), []).append(span)
        for spans in found.values():
            assert len(joined(spans)) == len([one for one in spans if one[0] < one[1]])
        expected = write_waits_of(tables, 0, ended)
        said = {key: joined(spans) for key, spans in found.items() if joined(spans)}
        assert said == expected
