"""`perf record`: every coming of some events, with the call chain that led to it.

All CPUs and every process, since the write-back that a target causes happens in kernel threads;
the recorder and perf itself are left out in the kernel where the event can be filtered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tracer.probes.backends.backend import all_but
from tracer.probes.backends.perf_tools.command import Perf, Running
from tracer.probes.errors import FeatureMissing, UsageError
from tracer.probes.kernel import tracefs

MOST_EVENTS = 64
_COUNTABLE = frozenset(
    (
        "page-faults",
        "faults",
        "minor-faults",
        "major-faults",
        "context-switches",
        "cs",
        "cpu-migrations",
        "migrations",
        "alignment-faults",
        "emulation-faults",
        "cgroup-switches",
    )
)
"""Software events that happen one by one; every one of them can be had."""
_HZ = 999
"""Samples a second and CPU of what never stops: cycles, clocks. Odd, to beat no timer's time."""
_CLOCK = "CLOCK_MONOTONIC"


def split(wanted: Iterable[str]) -> list[str]:
    """Events of options, each a list with commas; those between slashes belong to the event.

    Raises UsageError where there is none, too many, or a pattern in place of an event.
    """
    events: list[str] = []
    for one in wanted:
        # In PMU/TERM=1,TERM=2/ a comma parts no events.
        events += [e.strip() for e in re.findall(r"(?:[^,/]|/[^/]*/?)+", one) if e.strip()]
    events = list(dict.fromkeys(events))
    if not events:
        raise UsageError(
            "--callgraph names no event", "give one: --callgraph block:block_rq_insert"
        )
    if len(events) > MOST_EVENTS:
        raise UsageError(f"--callgraph names {len(events)} events", f"give {MOST_EVENTS} at most")
    for event in events:
        if not re.fullmatch(r"[A-Za-z0-9_:/=,.-]{1,200}", event) or event.startswith("-"):
            raise UsageError(f"{event!r} is no event", "name each in full; see: tracer list")
    return events


def sampled(event: str) -> bool:
    """Returns whether the event can only be sampled by time, not recorded one by one."""
    return not is_tracepoint(event) and event.partition(":")[0] not in _COUNTABLE


def is_tracepoint(event: str) -> bool:
    """Returns whether this kernel has the event as a tracepoint SYSTEM:NAME, with any modifier."""
    folder = _folder(event)
    return folder is not None and (folder / "id").exists()


def formats(events: Sequence[str]) -> dict[str, str]:
    """Returns the texts of the formats of the tracepoints among these events."""
    found = {}
    for event in filter(is_tracepoint, events):
        folder = _folder(event)
        assert folder is not None
        found[event] = (folder / "format").read_text()
    return found


def _folder(event: str) -> Path | None:
    """Returns the folder that tracefs has if SYSTEM:NAME is a tracepoint, without modifier."""
    parts = event.split(":")
    return tracefs() / "events" / parts[0] / parts[1] if len(parts) > 1 else None


def check(perf: Perf, events: Sequence[str]) -> None:
    """Raises the error that would keep perf from recording these: FeatureMissing, UsageError,
    ..."""
    perf.require("record", "--control", "--exclude-perf", "--filter", "--sample-identifier", "-k")
    for event in events:
        perf.try_options(["record", "--dry-run", "-a", "-e", event, "-o", "-", "--", "true"])
        # Without a PMU `perf record` takes a clock instead of cycles, and hardly says so.
        if not is_tracepoint(event) and not perf.counts(event):
            raise FeatureMissing(
                f"this machine cannot count {event}",
                "choose a tracepoint (tracer list) or cpu-clock",
            )


def groups(events: Sequence[str]) -> list[list[str]]:
    """Events by the perf that records them: one for every single coming, one for samples."""
    both = [[e for e in events if not sampled(e)], [e for e in events if sampled(e)]]
    return [group for group in both if group]


def record(
    perf: Perf, events: Sequence[str], leave_out: Iterable[int], buffer_kib: int, output: int
) -> Running:
    """A perf that will record one of `groups` into the open file `output`; wait for it next.

    `leave_out` are threads whose events are not wanted, `buffer_kib` the size of a CPU's buffer.
    """
    arguments = ["record", "-o", "-", "-a", "-k", _CLOCK, "--call-graph", "fp"]
    arguments.append("--sample-identifier")
    # Symbols are looked up elsewhere: nothing is copied into the user's cache of build ids.
    arguments += ["-N", "-B", "-m", f"{buffer_kib}K"]
    arguments += ["-F", str(_HZ)] if sampled(events[0]) else ["-c", "1"]
    unwanted = all_but(sorted(set(leave_out)))
    for event in events:
        arguments += ["-e", event]
        if is_tracepoint(event):
            arguments.append("--exclude-perf")
            if unwanted:
                arguments += ["--filter", unwanted]
    return Running(perf, arguments, output)
