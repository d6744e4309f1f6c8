"""The processes of ended targets that ran on when their recording ended, in words."""

from __future__ import annotations

from tracer.store.manifest_parts import LeftRunning

_NAMED = 5


def left_running_said(left: LeftRunning | None) -> str:
    """Returns how many processes ran on, and which; an empty string if none are known."""
    if not left or not left["count"]:
        return ""
    first = left["processes"][:_NAMED]
    names = [f"{process['name']} ({process['pid']})" for process in first]
    if more := left["count"] - len(first):
        names.append(f"and {more} more")
    many = "1 process" if left["count"] == 1 else f"{left['count']} processes"
    return f"{many} of the targets still ran when the recording ended: {', '.join(names)}"
