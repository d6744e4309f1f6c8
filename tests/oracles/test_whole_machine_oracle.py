"""A recording of the whole machine answers for everybody (docs/explain.md, docs/record.md).

Each drawn trace is told twice: with all processes as members of one target, and with the machine as
the target, which no process belongs to by name. The waits, the critical paths and the explanations
must be the same.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.verbs import called
from tests.oracles.data_waits import World
from tests.oracles.drawing import seeds
from tests.oracles.drawn_commits import SECOND, TABLES, Case
from tests.oracles.drawn_looks import drawn
from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.views.catalogue import VIEWS
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

ONE_SEED = pytest.mark.parametrize("seed", seeds(1))

ALL, TENANT = "everybody", "tenant"
MACHINE = {"name": "machine", "role": "target", "kind": "machine", "pid": 0}
KTHREADD = 2
KERNEL_ROLES = ("flusher", "journal")
MS = 10**6
CASES = 8
COMMIT_CASES = 40
"""Cases of commits: in many of them no wait for a journal has an owner of its data."""

Row = dict[str, Any]
Tables = dict[str, list[Row]]
Drawn = tuple[Tables, dict[str, Any]]


def is_kernel(row: Row) -> bool:
    """Tells if the row of a process is that of a thread of the kernel."""
    return KTHREADD in (row["pid"], row["ppid"])


def told(tables: Tables, whose: Callable[[Row], tuple[str | None, str]]) -> Tables:
    """Returns the tables with another target and role for each process."""
    rows = []
    for row in tables["processes"]:
        target, role = whose(row)
        role = row["role"] if row["role"] in KERNEL_ROLES else role
        rows.append(row | {"target": target, "role": role})
    return tables | {"processes": rows}


def as_members(drawn: Drawn, kernel: bool = False) -> Drawn:
    """Everybody is a member of one target; `kernel`: the threads of the kernel, too."""
    tables, manifest = drawn
    first = next(row["pid"] for row in tables["processes"] if not is_kernel(row))
    target = {"name": ALL, "role": "target", "kind": "pid", "pid": first}

    def whose(row: Row) -> tuple[str | None, str]:
        member = kernel or not is_kernel(row)
        return (ALL, "target") if member else (None, "other")

    return told(tables, whose), manifest | {"targets": [target]}


def as_machine(drawn: Drawn, tenant: Iterable[int] = ()) -> Drawn:
    """The machine is the target; `tenant`: processes of another one beside it."""
    tables, manifest = drawn
    pids = set(tenant)
    targets = [MACHINE]
    if pids:
        targets.append({"name": TENANT, "role": "target", "kind": "pid", "pid": min(pids)})

    def whose(row: Row) -> tuple[str | None, str]:
        return (TENANT, "target") if row["pid"] in pids else (None, "other")

    return told(tables, whose), manifest | {"targets": targets}


def is_same(column: str) -> bool:
    """Tells if a column does not depend on what a target is called."""
    return "target" not in column and column != "role"


def rows_of(trace: Trace, name: str) -> Counter[tuple[tuple[str, Any], ...]]:
    """Returns the rows of a view without the names of targets."""
    VIEWS[name].make(trace)
    cursor = trace.connection.execute(f"SELECT * FROM {name}")
    names = [column[0] for column in cursor.description]
    return Counter(
        tuple((key, value) for key, value in zip(names, row, strict=True) if is_same(key))
        for row in cursor.fetchall()
    )


def without_targets(value: Any) -> Any:
    """Returns JSON without what names targets or the trace, and advice that needs targets.

    Targets tell whether the job's own processes have the CPU that it waits for.
    """
    if isinstance(value, str):
        return re.sub("(waits for a CPU that another thread has [^:]*): .*", r"\1", value)
    if isinstance(value, dict):
        return {
            key: without_targets(one)
            for key, one in value.items()
            if is_same(key) and key != "trace"
        }
    return [without_targets(one) for one in value] if isinstance(value, list) else value


def answers(drawn: Drawn, by: Iterable[str] = ()) -> dict[str, Any]:
    """The waits and the paths of a trace, and its explanations by these groupings."""
    tables, manifest = drawn
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        with make_trace(Path(folder) / "t", tables, **manifest) as trace:
            found: dict[str, Any] = {
                name: rows_of(trace, name) for name in ("waits", "critical_path")
            }
        for grouping in by:
            said = called("explain", Path(folder) / "t", "--by", grouping, "--json")
            found[grouping] = without_targets(json.loads(said))
    return found


def joined(rows: Counter[tuple[tuple[str, Any], ...]]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Joins the parts of waits for data that follow one another and name the same process.

    A target gives the data of one process several owners: it dirtied some of it alone, and some
    together with a process of another target.
    """
    found: list[Row] = []
    plain: list[tuple[tuple[str, Any], ...]] = []
    for one in rows.elements():
        row = dict(one)
        if row.get("detail") == "data" and row["dur_ns"] is not None:
            found.append({key: value for key, value in row.items() if key != "certainty"})
        else:
            plain.append(one)
    parts: list[Row] = []
    for row in sorted(found, key=lambda row: (row["tid"], row["ts"], row["dur_ns"])):
        last = parts[-1] if parts else None
        changes = {"ts": row["ts"], "dur_ns": row["dur_ns"]}
        if last and last["ts"] + last["dur_ns"] == row["ts"] and last | changes == row:
            last["dur_ns"] += row["dur_ns"]
        else:
            parts.append(row)
    return Counter(plain) + Counter(tuple(row.items()) for row in parts)


# Traces


def world(seed: int) -> Drawn:
    """Jobs that wait for their workers, and a stranger; worlds without recorded sleeps are none."""
    made = next(one for one in map(World, count(seed)) if one.tables.get("off_cpu"))
    return made.tables | {"loss": made.gap}, made.manifest


def looks(seed: int) -> Drawn:
    """Threads that wait for each other at random; no samples tell of a quota."""
    cases = [random.Random(number) for number in range(seed, seed + CASES)]
    tables, _, manifest = drawn(cases)
    return tables | {"samples": []}, manifest


def commits(seed: int) -> Drawn:
    """Threads that wait for the data of others in commits of a journal."""
    clock = {"name": "mono", "start_ns": SECOND // 2, "end_ns": 1000 * SECOND}
    tables: Tables = {name: [] for name in (*TABLES, "phases")}
    manifest: dict[str, Any] = {"disks": [], "mounts": [], "btrfs": [], "clock": clock}
    for number in range(COMMIT_CASES):
        case = Case(number, random.Random(seed + number))
        case.run()
        for name in case.manifest:
            manifest[name] += case.manifest[name]
        for name, rows in case.told().items():
            tables[name] += [case.as_numbered(row, "pid", "tid") for row in rows]
    return tables, manifest


def with_kernel_threads(drawn: Drawn, numbers: random.Random) -> Drawn:
    """Adds threads of the kernel that sleep, wait for a CPU, and wake programs."""
    tables, manifest = drawn
    begin, end = manifest["clock"]["start_ns"], manifest["clock"]["end_ns"]
    programs = [row["tid"] for row in tables["processes"] if not is_kernel(row)]
    processes, off_cpu = [*tables["processes"]], []
    for row in tables["off_cpu"]:
        woken = {"waker_tid": 3, "waker_pid": 3} if numbers.random() < 0.3 else {}
        off_cpu.append(row | woken if row.get("waker_tid") else row)
    for tid, comm, role in ((3, "kworker/0:1", "other"), (4, "kworker/u8:0", "flusher")):
        thread = {"pid": tid, "tid": tid, "ppid": KTHREADD, "comm": comm, "role": role}
        processes.append(thread | {"target": None})
        times = sorted(numbers.sample(range(begin, min(end, begin + 200 * MS)), 40))
        for since, until in zip(times[::2], times[1::2], strict=True):
            state, by = numbers.choice(["S", "D", "I", "R"]), numbers.choice(programs)
            row = {"ts": since, "dur_ns": until - since, "pid": tid, "tid": tid, "state": state}
            row |= {"cpu": 0, "ran_cpu": 0, "ran_tid": numbers.choice([0, by])}
            row["run_delay_ns"] = until - since
            if state != "R":
                woken_ns = since + (until - since) // 2
                row |= {"wake_ns": woken_ns, "waker_tid": by, "waker_pid": by, "interrupt": False}
                row["run_delay_ns"] = until - woken_ns
            off_cpu.append(row)
    off_cpu.sort(key=lambda row: row["ts"] + (1 << 40 if row["dur_ns"] is None else row["dur_ns"]))
    return tables | {"processes": processes, "off_cpu": off_cpu}, manifest


@ONE_SEED
def test_steps_of_the_whole_machine_are_explained_as_those_of_a_target_of_everybody(seed):
    told = world(seed)
    found = answers(as_machine(told), ["kind"])
    assert found == answers(as_members(told), ["kind"])
    assert found["kind"]["slowest"]


@ONE_SEED
def test_waits_and_paths_of_the_whole_machine_are_those_of_a_target_of_everybody(seed):
    told = looks(seed)
    found = answers(as_machine(told))
    assert found == answers(as_members(told))
    assert found["waits"].total() > 100
    assert found["critical_path"].total() > 20


@ONE_SEED
def test_waits_of_the_whole_machine_for_a_journal_name_the_owners_of_the_data(seed):
    told = commits(seed)
    found = answers(as_machine(told))
    assert found == answers(as_members(told))
    assert sum(dict(row)["for_pid"] is not None for row in found["waits"]) > 10


@ONE_SEED
@pytest.mark.parametrize("make", [looks, commits])
def test_a_target_beside_the_machine_changes_no_wait(make, seed):
    told = make(seed)
    pids = {row["pid"] for row in told[0]["processes"] if row.get("target")}
    some = set(sorted(pids)[: len(pids) // 2])
    assert some
    beside, alone = answers(as_machine(told, some)), answers(as_machine(told))
    for name, rows in alone.items():
        assert joined(beside[name]) == joined(rows)


@ONE_SEED
def test_threads_of_the_kernel_have_waits_but_no_path_goes_on_in_them(seed):
    """A path ends in the wait for a thread of the kernel, as if it were no target's."""
    told = with_kernel_threads(looks(seed), random.Random(seed))
    found = answers(as_machine(told))
    assert found["waits"] == answers(as_members(told, kernel=True))["waits"]
    assert found["critical_path"] == answers(as_members(told))["critical_path"]
    named = [dict(row) for row in found["critical_path"]]
    assert any(row["by_tid"] == 3 for row in named)
