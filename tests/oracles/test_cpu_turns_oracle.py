"""Waits for a CPU are charged to those who had it, ns by ns, as the drawn turns tell."""

import random
from collections import Counter

import pytest

from tests.oracles.cpu_turns import CPUS, MOST_PARTS, World
from tests.support.traces import make_trace
from tracer.analysis.views.waits import waits

pytestmark = pytest.mark.slow

WORLDS = 40
"""Cases in a trace, each at a time, on CPUs and of threads of its own."""
TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": 1000}]
LEFT_OUT = ("thread", "turn")


def drawn(seed):
    """The cases of a trace."""
    worlds, start = [], 1000
    for number in range(WORLDS):
        numbers = random.Random(seed * WORLDS + number)
        world = World(numbers, 1000 * (number + 1), CPUS * number, start)
        world.run()
        worlds.append(world)
        start = world.end + 1000
    return worlds


def made(folder, worlds):
    """The trace of all cases, in which the recorded threads are a target's."""
    processes = [
        {"pid": one.number, "tid": one.number, "ppid": 1, "comm": one.name}
        | {"role": "target" if one.recorded else "other"}
        | {"target": "job" if one.recorded else None, "start_ns": one.born, "end_ns": one.gone}
        for world in worlds
        for one in world.threads
    ]
    off_cpu = [row for world in worlds for row in world.off_cpu]
    off_cpu.sort(key=lambda row: row["ts"] + (1 << 40 if row["dur_ns"] is None else row["dur_ns"]))
    tables = {
        "processes": processes,
        "off_cpu": [{k: v for k, v in row.items() if k not in LEFT_OUT} for row in off_cpu],
        "loss": [row for world in worlds for row in world.loss],
    }
    return make_trace(folder, tables, targets=TARGETS)


def rows_of_waits(trace):
    """The waits for a CPU of the view, by thread, as the oracle has them."""
    waits(trace)
    found = {}
    for tid, *row in trace.rows(
        "SELECT tid, ts, dur_ns, by_comm, certainty FROM waits"
        " WHERE kind = 'cpu' AND dur_ns > 0 ORDER BY tid, ts"
    ):
        found.setdefault(tid, []).append(tuple(row))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_parts_are_those_of_the_turns(tmp_path, seed):
    worlds = drawn(seed)
    with made(tmp_path / "t", worlds) as trace:
        found = rows_of_waits(trace)
    counts = Counter()
    expected = {}
    for world in worlds:
        for tid, parts in world.waits():
            expected.setdefault(tid, []).extend(map(tuple, parts))
            counts[min(len(parts), MOST_PARTS + 1)] += 1
            counts["nobody"] += any(part.certainty == "inferred" for part in parts)
    assert found == {tid: sorted(parts) for tid, parts in expected.items()}
    assert counts[1] > 50 and counts[2] > 50 and counts[3] > 20
    assert counts["nobody"] > 5 and counts[MOST_PARTS + 1] > 0
