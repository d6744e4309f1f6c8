"""What a recording cost the machine, in words: its capture first, and its tables beside it."""

from __future__ import annotations

from tracer.sizes import show_number, show_size
from tracer.store.manifest import OwnCost

TOGETHER = "capture and tables together: the trace does not tell them apart"


def cost_said(cost: OwnCost) -> list[str]:
    """What capture took and what the tables took, a phrase each; of old traces one of both.

    Empty where nothing was measured. What is not known is left out of a phrase.
    """
    capture = _phrase(cost.get("capture_cpu_s"), cost.get("capture_max_rss_bytes"))
    tables = _phrase(cost.get("tables_cpu_s"), cost.get("tables_max_rss_bytes"))
    if "tables_cpu_s" in cost or "cpu_s" not in cost:
        named = ((capture, "to capture"), (tables, "to make the tables"))
        return [f"{said} {what}" for said, what in named if said]
    return [f"{_phrase(cost['cpu_s'], cost.get('max_rss_bytes'))} ({TOGETHER})"]


def _phrase(cpu_s: float | None, memory: int | None) -> str:
    parts = []
    if cpu_s is not None:
        parts.append(f"{show_number(cpu_s, 2)} s CPU")
    if memory is not None:
        parts.append(f"{show_size(memory)} memory")
    return ", ".join(parts)
