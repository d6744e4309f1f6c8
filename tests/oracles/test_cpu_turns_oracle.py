"""Waits for a CPU are charged to those who had it, ns by ns, as the drawn turns tell."""

import random
from collections import Counter

import pytest

from tests.oracles.cpu_turns import MOST_PARTS, Charged
from tests.oracles.cpu_world import CPUS, IDLE, Thread
from tests.oracles.drawing import seeds
from tests.support.traces import make_trace
from tracer.analysis.views.waiting.waits import waits

pytestmark = pytest.mark.slow

WORLDS = 40
"""Cases in a trace, each at a time, on CPUs and of threads of its own."""
TICK = 200_000
"""Length of a tick (ns) where waits are long enough to be throttled."""
SECONDS = 1_000_000_000
"""Length of a tick (ns) where turns are longer than 32 bits can tell."""
TIMES = ("ts", "dur_ns", "run_delay_ns", "wake_ns", "start_ns", "end_ns", "from", "to")
LEFT_OUT = ("thread", "turn", "got", "of")


def drawn(seed, unit):
    """The cases of a trace."""
    worlds, start = [], 1000
    for number in range(WORLDS):
        numbers = random.Random(seed * WORLDS + number)
        world = Charged(numbers, 1000 * (number + 1), CPUS * number, start, unit=unit)
        world.run()
        worlds.append(world)
        start = world.end + 1000
    return worlds


def made(folder, worlds, unit):
    """The trace of all cases, in which the recorded threads are a target's."""
    processes = [
        {"pid": one.number, "tid": one.number, "ppid": 2 if one.kernel else 1, "comm": one.name}
        | {"role": "target" if one.recorded else "other"}
        | {"target": world.target if one.recorded else None}
        | {"start_ns": one.born, "end_ns": one.gone}
        for world in worlds
        for one in world.threads
    ]
    off_cpu = [row for world in worlds for row in world.off_cpu]
    off_cpu.sort(key=lambda row: row["ts"] + (1 << 40 if row["dur_ns"] is None else row["dur_ns"]))
    tables = {
        "processes": processes,
        "off_cpu": [{k: v for k, v in row.items() if k not in LEFT_OUT} for row in off_cpu],
        "samples": [row for world in worlds for row in world.samples],
        "loss": [row for world in worlds for row in world.loss],
    }
    tables = {name: [in_ns(row, unit) for row in rows] for name, rows in tables.items()}
    targets = [
        {"name": world.target, "role": "target", "kind": "pid", "pid": world.base}
        for world in worlds
    ]
    return make_trace(folder, tables, targets=targets)


def in_ns(row, unit):
    return {k: v * unit if k in TIMES and v is not None else v for k, v in row.items()}


def rows_of_waits(trace, unit):
    """The waits for a CPU of the view, and the throttled times, by thread and in ticks."""
    waits(trace)
    found, stopped = {}, {}
    for tid, ts, dur_ns, kind, *who in trace.rows(
        "SELECT tid, ts, dur_ns, kind, by_comm, certainty FROM waits"
        " WHERE kind IN ('cpu', 'throttled') AND dur_ns > 0 ORDER BY tid, ts"
    ):
        assert ts % unit == dur_ns % unit == 0
        begin, length = ts // unit, dur_ns // unit
        if kind == "cpu":
            found.setdefault(tid, []).append((begin, length, *who))
        else:
            stopped.setdefault(tid, []).append((begin, begin + length))
    return found, stopped


def left_to(world, tid):
    """The threads that got a CPU from a thread which then came to another one that was idle."""
    return {
        row["got"].name
        for row in world.off_cpu
        if row["tid"] == tid and row["turn"] is not None and row["state"] in ("R", "R+")
        and row["turn"].before == IDLE and row["cpu"] != row["turn"].cpu
        and isinstance(row["got"], Thread)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seed", "unit"),
    [
        *((seed, 1) for seed in seeds(4)),
        *((100 + seed, TICK) for seed in seeds(3)),
        *((200 + seed, SECONDS) for seed in seeds(1)),
    ],
)
def test_parts_are_those_of_the_turns(tmp_path, seed, unit):
    worlds = drawn(seed, unit)
    with made(tmp_path / "t", worlds, unit) as trace:
        found, stopped = rows_of_waits(trace, unit)
    counts = Counter()
    expected = {}
    for world in worlds:
        for tid, parts in world.waits(stopped):
            expected.setdefault(tid, []).extend(map(tuple, parts))
            counts[min(len(parts), MOST_PARTS + 1)] += 1
            counts["nobody"] += any(part[2:] == (None, "inferred") for part in parts)
            counts["left"] += any(part.by_comm in left_to(world, tid) for part in parts)
            counts["in doubt"] += any(part.by_comm and part.certainty != "exact" for part in parts)
    assert found == {tid: sorted(parts) for tid, parts in expected.items() if parts}
    assert counts[1] > 50 and counts[2] > 50 and counts[3] > 20
    assert unit > 1 or counts["left"] > 5
    assert counts["nobody"] > 5 and counts["in doubt"] > 50 and counts[MOST_PARTS + 1] > 0
    lengths = [part[1] for parts in found.values() for part in parts]
    lengths += [end - begin for times in stopped.values() for begin, end in times]
    assert sum(lengths) == sum(world.waited() for world in worlds)
    assert (unit > 1) == bool(stopped)
