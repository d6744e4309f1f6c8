"""The cost of a recording to the machine, in words: the capture, and the making of the tables."""

from __future__ import annotations

from tracer.sizes import show_number, show_size
from tracer.store.manifest_parts import OwnCost

_TOGETHER = "capture and tables together: the trace does not separate them"


def cost_said(cost: OwnCost) -> list[str]:
    """Returns a phrase for the capture and one for the tables; for old traces one for both.

    Empty if nothing was measured. Unknown values are left out of a phrase.
    """
    capture = _phrase(cost.get("capture_cpu_s"), cost.get("capture_max_rss_bytes"))
    tables = _phrase(cost.get("tables_cpu_s"), cost.get("tables_max_rss_bytes"))
    if _told_apart(cost) or "cpu_s" not in cost:
        named = ((capture, "to capture"), (tables, "to make the tables"))
        return [f"{said} {what}" for said, what in named if said]
    return [f"{_phrase(cost['cpu_s'], cost.get('max_rss_bytes'))} ({_TOGETHER})"]


def headline(cost: OwnCost) -> tuple[float | None, str]:
    """Returns the CPU time in s (None: unknown) that represents the recording, and its scope."""
    if _told_apart(cost):
        return cost.get("capture_cpu_s"), "capture"
    return cost.get("cpu_s"), _TOGETHER


def _told_apart(cost: OwnCost) -> bool:
    return "tables_cpu_s" in cost


def _phrase(cpu_s: float | None, memory: int | None) -> str:
    parts = []
    if cpu_s is not None:
        parts.append(f"{show_number(cpu_s, 2)} s CPU")
    if memory is not None:
        parts.append(f"{show_size(memory)} memory")
    return ", ".join(parts)
