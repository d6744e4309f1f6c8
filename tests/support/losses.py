"""The losses of a trace as text, so that a test that meets one says which."""

from __future__ import annotations

from tracer.store.trace import Trace


def losses(trace: Trace) -> list[str]:
    """Returns "stream: count cause" of each gap of a trace, "?" for an unknown count."""
    rows = trace.rows('SELECT stream, count, cause FROM loss ORDER BY "from", stream, cause')
    assert trace.manifest["loss"]["windows"] + trace.manifest["loss"]["others"] == len(rows)
    return [f"{stream}: {'?' if count is None else count} {cause}" for stream, count, cause in rows]
