"""The programs that count events instead of recording them: their hooks and their results.

Layouts and kinds: summary.bpf.c.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Literal

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.perf_events.attributes import MAJOR_FAULTS, MINOR_FAULTS

SOURCE = "summary.bpf.c"

_SECOND_ARGUMENT = 8
"""Offset in struct bpf_raw_tracepoint_args of include/uapi/linux/bpf.h."""

SYSCALL, FAULT, REQUEST, WRITEBACK = 1, 2, 3, 4


@dataclass(frozen=True)
class Hook:
    """A function of summary.bpf.c, its tracepoint, and the fields whose offsets it takes."""

    probe: str
    event: str
    call: str
    fields: tuple[str, ...]
    raw: str = ""
    """Name of the raw tracepoint to attach to instead. The one field, if any, is then the
    tracepoint's second argument, and the function takes that one's offset."""


# While a program of a raw tracepoint runs, the kernel runs programs of other tracepoints, so that
# completions of requests are counted during system calls, too. It also runs while a process on the
# CPU reads a map, so that no end of a thread is missed.
HOOKS = (
    Hook("syscalls", "raw_syscalls:sys_enter", "call_begins", ("id",), raw="sys_enter"),
    Hook("syscalls", "raw_syscalls:sys_exit", "call_ends", ("ret",), raw="sys_exit"),
    Hook("syscalls", "sched:sched_process_exit", "thread_ends", (), raw="sched_process_exit"),
    Hook(
        "syscalls",
        "sched:sched_process_exec",
        "thread_executes",
        ("old_pid",),
        raw="sched_process_exec",
    ),
    Hook("block", "block:block_rq_issue", "request_issued", ("dev", "sector")),
    Hook(
        "block",
        "block:block_rq_complete",
        "request_completed",
        ("dev", "sector", "nr_sector", "rwbs", "error"),
    ),
    Hook("writeback", "writeback:writeback_start", "work_begins", ("reason",)),
    Hook("writeback", "writeback:writeback_single_inode", "inode_written", ("wrote",)),
    Hook("writeback", "writeback:writeback_written", "work_ends", ()),
)

FAULTS = {"count_minor": (MINOR_FAULTS, 0), "count_major": (MAJOR_FAULTS, 1)}
"""Function name to (perf software event, 1 for major faults or 0 for minor faults)."""


def body(hook: Hook, parsed: EventFormat) -> str:
    """Returns the C statement that is the body of a hook's function."""
    offsets = [str(parsed.field(name).offset) for name in hook.fields]
    if hook.raw and hook.fields:
        offsets = [str(_SECOND_ARGUMENT)]
    return f"return {hook.call}({', '.join(['ctx', *offsets])});"


def fault_body(major: int) -> str:
    """Returns the C statement that is the body of a fault event's function."""
    return f"return count_fault({major});"


Sum = tuple[Literal[1, 2, 3, 4], int, int, int, int, int, int]
"""(kind, what, pid, count, errors, total_ns, amount) since the programs were loaded."""

Slot = tuple[Literal[1, 3], int, int, int]
"""(kind, what, slot, count): the number of times from 2^slot ns to less than 2^(slot + 1) ns."""


def sums(bpf: Any) -> list[Sum]:
    """Returns all sums so far."""
    found = []
    for key, parts in bpf["sums"].items():
        count, errors, total_ns, amount = (
            sum(int(getattr(part, name)) for part in parts)
            for name in ("count", "errors", "total_ns", "amount")
        )
        found.append((key.kind, key.what, key.tgid, count, errors, total_ns, amount))
    return found


def slots(bpf: Any) -> list[Slot]:
    """Returns the slots of all histograms so far."""
    return [
        (key.kind, key.what, key.slot - 1, sum(int(part) for part in parts))
        for key, parts in bpf["slots"].items()
    ]


def uncounted(bpf: Any) -> int:
    """Returns the number of updates that failed because a kernel map was full."""
    return sum(int(part) for part in bpf["uncounted"][ctypes.c_int(0)])
