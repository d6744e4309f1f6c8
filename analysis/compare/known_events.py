"""Events that a trace tells of, also if none occurred: their count is then 0, and not unknown."""

from __future__ import annotations

from tracer.probes.catalogue import PROBES
from tracer.probes.errors import BadTrace
from tracer.store.trace import Trace


def require_event(trace: Trace, table: str, label: str) -> None:
    """Raises BadTrace if a trace cannot tell how often an event of a table occurred.

    It lacks the table, or the kernel of the recording lacked the event. The source of an imported
    trace may not have logged an event that the trace lacks. `label`: the event in the column event.
    """
    trace.require(table)
    if "imported" in trace.manifest:
        found = trace.rows(f"SELECT 1 FROM \"{table}\" WHERE event = '{label}' LIMIT 1")
        is_known = bool(found)
    else:
        formats = trace.manifest["capture"].get("formats")
        names = {
            event.name
            for probe in PROBES.values()
            for event in probe.events
            if probe.table.name == table and event.label == label
        }
        is_known = not formats or not names.isdisjoint(formats)
    if not is_known:
        raise BadTrace(
            f"{trace.folder} has no event {label} of the table {table}",
            "record it on a kernel that logs it",
        )
