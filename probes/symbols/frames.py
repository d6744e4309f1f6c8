"""Kernel functions as frames of a stack."""

from __future__ import annotations

PLUMBING = (
    *(
        "__traceiter_",
        "perf_trace_",
        "__do_trace_",
        "trace_event_raw_event_",
        "trace_event_buffer_",
    ),
    *("event_triggers_", "stacktrace_", "trace_call_bpf", "bpf_prog_", "bpf_trace_run"),
)
"""Beginnings of the names of functions that call a tracepoint's tracer, and of the tracer's own:
they are no part of the way to the event."""
_MOST_NAME = 4096


def escaped(name: str) -> str:
    """Returns a name that can end neither its frame nor its line."""
    if name.isprintable() and ";" not in name and "\\" not in name:
        return name[:_MOST_NAME]
    return "".join(
        c if c.isprintable() and c not in ";\\" else f"\\x{ord(c):02x}" for c in name[:_MOST_NAME]
    )


def without_module(name: str) -> str:
    """Returns a function's name without its module: built in or not, it is the same function."""
    return name.partition(" [")[0]
