"""Waiting time by stack, in the folded format that draws flame graphs.

A line has frames from the root, joined by `;`, and after a space the time in us. The frames are the
target, the thread's name, the Python functions, the kernel's with `_[k]` behind their names, and in
brackets the kind of wait with its detail, call and waker.
"""

from __future__ import annotations

from typing import BinaryIO

from tracer.analysis.exchange.drawing import Window
from tracer.analysis.views.waiting.waits import waits
from tracer.probes.call_graphs import KERNEL
from tracer.store.trace import Trace

NO_LOOK = "[no look at this wait]"
"""Frame in place of the functions, if no look at the stack fell into the wait."""

_ENDS = "ts::HUGEINT + dur_ns"
_QUERY = """
SELECT target, comm, stack, kernel_stack, kind, call, detail, by_comm,
    round(sum({length})::DOUBLE / 1000)::BIGINT AS us
FROM waits WHERE {condition} GROUP BY ALL HAVING us > 0 ORDER BY ALL
"""


def write_folded(trace: Trace, file: BinaryIO, window: Window | None) -> dict[str, int]:
    """Writes the waits of the targets' threads. Returns the numbers of stacks and of waits.

    A wait that a window's begin or end cuts counts for the part within. Waits of unknown length are
    left out, and sums below 0.5 us. Raises BadTrace if the trace has no waits.
    """
    waits(trace)
    length, condition = "dur_ns", "dur_ns > 0"
    if window is not None:
        length = f"least({_ENDS}, {window.end}) - greatest(ts, {window.start})"
        condition += f" AND ts < {window.end} AND {_ENDS} > {window.start}"
    stacks = 0
    for target, comm, stack, kernel_stack, *wait, us in trace.rows(
        _QUERY.format(length=length, condition=condition)
    ):
        around = [target or "[no target]", comm or "[unnamed]"]
        frames = [
            *(_frame(name, ";\\") for name in around),
            *(_frame(name, ";") for name in functions(stack, kernel_stack)),
            _frame(leaf(*wait), ";\\"),
        ]
        file.write(f"{';'.join(frames)} {us}\n".encode("utf-8", "backslashreplace"))
        stacks += 1
    [(count,)] = trace.rows(f"SELECT count(*) FROM waits WHERE {condition}")
    return {"stacks": stacks, "waits": count}


def functions(stack: str | None, kernel_stack: str | None) -> list[str]:
    """Returns the frames of the functions that a thread waits in, from the root."""
    python = [NO_LOOK] if stack is None else stack.split(";")
    return python + [name + KERNEL for name in (kernel_stack or "").split(";") if name]


def leaf(kind: str, call: str | None, detail: str | None, by_comm: str | None) -> str:
    """Returns the frame of a wait: "[disk: 8:0, read, by kworker/0:1]"."""
    said = [part for part in (detail, call) if part is not None]
    if by_comm is not None:
        said.append(f"by {by_comm}")
    return f"[{kind}: {', '.join(said)}]" if said else f"[{kind}]"


def _frame(name: str, escaped: str) -> str:
    """Returns a name that ends neither its frame nor its line.

    Names of functions are recorded with their backslashes escaped.
    """
    return "".join(c if c.isprintable() and c not in escaped else f"\\x{ord(c):02x}" for c in name)
