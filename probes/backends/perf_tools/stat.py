"""`perf stat`: counters of one target, started with it and read from its own format.

A process is counted with all its threads and with the children that it makes from then on; a
cgroup with whoever comes into it, but no more once it is removed and made anew. Of a command that
waits to be let go, what it does before its exec is counted, too: perf's enable_on_exec serves only
commands that perf starts itself. That is no system call but the exec, and some dozen page faults.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pyarrow as pa

from tracer.probes.backends.perf_tools.command import Perf, Running
from tracer.probes.counters import COUNTED, COUNTERS, NOT_COUNTED, NOT_SUPPORTED, NS, TABLE, Counter
from tracer.probes.errors import TargetGone, TracerError
from tracer.probes.kernel import tracefs

_SEPARATOR = ";"
"""Stands in no event's name."""
_PMUS = ("cpu", "cpu_core", "cpu_atom")
_PMU_FOLDER = Path("/sys/bus/event_source/devices")
_CGROUP = "--for-each-cgroup"
_ATTEMPTS = 5
_MAX_LINES = 10_000
_INT64_END = 1 << 63
_NS = {"msec": 10**6, "usec": 10**3, "ns": 1}


@dataclass(frozen=True)
class Plan:
    """The events that perf is asked to count, and those that this machine lacks."""

    events: tuple[str, ...]
    missing: tuple[str, ...]


def plan(counters: Iterable[Counter] = COUNTERS) -> Plan:
    """Sort counters into those that perf can be asked for here and those that it cannot.

    Whether the CPU counts cycles, perf finds out itself; a tracepoint or an event of one kind of
    CPU that is not there would make it refuse all of them.
    """
    folder = _tracepoints()
    events: list[str] = []
    missing: list[str] = []
    for counter in counters:
        if ":" in counter.event:
            there = folder is not None and (folder / counter.event.replace(":", "/")).is_dir()
            found = [counter.event] if there else []
        elif counter.described:
            found = [
                f"{pmu}/{counter.event}/"
                for pmu in _PMUS
                if (_PMU_FOLDER / pmu / "events" / counter.event).exists()
            ]
        else:
            found = [counter.event]
        events += found
        if not found:
            missing.append(counter.event)
    return Plan(tuple(events), tuple(missing))


def _tracepoints() -> Path | None:
    """Returns the folder of the tracepoints that perf can count; None if it cannot count them."""
    try:
        return tracefs(writable=False) / "events"
    except TracerError:
        return None


def check(perf: Perf) -> None:
    """FeatureMissing where this perf cannot count a running target."""
    perf.require("stat", "--control", "--log-fd", "-x", "-D")


def can_count(perf: Perf, cgroup: str) -> bool:
    """Returns whether perf accepts a cgroup of this path: some characters have a meaning in its
    options."""
    return perf.knows("stat", _CGROUP) and re.fullmatch(r"[A-Za-z0-9_./:@-]+", cgroup) is not None


def count(
    perf: Perf,
    events: Sequence[str],
    output: int,
    pids: Callable[[], Sequence[int]] | None = None,
    cgroup: str | None = None,
) -> Running:
    """A perf that is ready to count into the open file `output`: the machine, or what is given.

    `pids` gives a target's processes as they are now; it is asked again where one of them ended
    while perf attached. `cgroup` is a path that `can_count`, from the root of the hierarchy that
    perf uses. Raises TargetGone where no process is left.
    """
    for attempt in range(_ATTEMPTS):
        whose = ["-a"] if cgroup is None else ["-a", _CGROUP, cgroup]
        if pids is not None:
            found = pids()
            if not found:
                raise TargetGone("the target has ended", "start it and record again")
            whose = ["-p", ",".join(map(str, found))]
        running = Running(
            perf,
            ["stat", "-x", _SEPARATOR, "--log-fd", str(output), "-e", ",".join(events), *whose],
            subprocess.DEVNULL,
            keep=[output],
        )
        try:
            running.wait_ready()
        except TargetGone:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return running
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Value:
    """One line of `perf stat -x`; times in ns."""

    event: str
    value: int | None
    unit: str
    state: str
    running_ns: int | None
    enabled_ns: int | None


def parse(text: str, missing: Sequence[str] = (), cgroup: str | None = None) -> list[Value]:
    """The lines of `perf stat -x ';'`, and a line for each event that could not be asked for.

    Fields: value, unit, event, the cgroup if one was given, time running in ns, share of time
    running in %. What is not such a
    line is skipped. Source: tools/perf/Documentation/perf-stat.txt, "CSV FORMAT".
    """
    found = []
    for line in text.splitlines()[:_MAX_LINES]:
        fields = line.split(_SEPARATOR)
        if cgroup is not None and fields[3:4] == [cgroup]:
            del fields[3]
        if len(fields) < 5 or not fields[2]:
            continue
        value, unit, event, running, share = fields[:5]
        state = {"<not supported>": NOT_SUPPORTED, "<not counted>": NOT_COUNTED}.get(value, COUNTED)
        number = _number(value)
        ran = _number(running)
        if state is COUNTED and number is None:
            continue
        ran_ns = None if ran is None or state is NOT_SUPPORTED else _int64(ran)
        scale = _NS.get(unit)
        if scale is not None and number is not None:
            # A clock ticks while it runs: its time running is its value, unrounded.
            exact = re.fullmatch(r"(task|cpu)-clock(:\w*)?", event) and share == "100.00"
            number = Decimal(ran_ns) if exact and ran_ns is not None else number * scale
            unit = NS
        found.append(
            Value(
                event,
                None if number is None else _int64(number),
                unit or "events",
                state,
                ran_ns,
                _enabled(ran_ns, _number(share)),
            )
        )
    return found + [Value(event, None, "events", NOT_SUPPORTED, None, None) for event in missing]


def _number(text: str) -> Decimal | None:
    if len(text) > 40 or not re.fullmatch(r"\d+(\.\d+)?", text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _int64(number: Decimal) -> int:
    return min(int(number), _INT64_END - 1)


def _enabled(running_ns: int | None, share: Decimal | None) -> int | None:
    if running_ns is None or share is None or not share:
        return None
    return _int64(running_ns * 100 / share)


def rows(found: Sequence[tuple[str, Value]]) -> pa.RecordBatch:
    """(target, value) pairs as rows of the table counters."""
    schema = TABLE.arrow_schema()
    columns = [
        [target for target, _ in found],
        *(
            [getattr(value, column.name) for _, value in found]
            for column in TABLE.columns
            if column.name != "target"
        ),
    ]
    arrays = [
        pa.array(values, pa.string()).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(values, field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
