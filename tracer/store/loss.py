"""Every gap in a recording: which stream, which CPU, between when and when, how many events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from probes.loss import TABLE, Gap
from tracer.store.manifest import LossFacts


def uncounted(
    gaps: Iterable[Gap],
    stats: Mapping[str, Mapping[str, int]],
    streams: Mapping[str, tuple[int, int | None]],
) -> list[Gap]:
    """Gaps for what the kernel counted as lost beyond the gaps found in the streams.

    `stats` are the kernel's own counters of each stream at the end of the recording, `streams`
    the CPU of each and the time of its last event. Events that were logged but never read (the
    disk or the trace was full) lie after that; where the others lie is not known.
    """
    found: list[Gap] = []
    located: dict[tuple[str, str], int] = {}
    for gap in gaps:
        key = (gap.stream, gap.cause)
        located[key] = located.get(key, 0) + (gap.count or 0)
    for stream, counters in stats.items():
        if stream not in streams:
            continue
        lost = {
            "buffer overrun": counters.get("overrun", 0),
            "write contention": counters.get("commit overrun", 0),
            "buffer full": counters.get("dropped events", 0),
            "never read": counters.get("entries", 0),
        }
        cpu, last = streams[stream]
        for cause, counted in lost.items():
            # The rest is of gaps whose size the streams do not tell.
            count = counted - located.get((stream, cause), 0)
            if count > 0:
                start = last if cause == "never read" else None
                found.append(Gap(stream, cpu, start, None, count, cause))
    return found


def rows(gaps: list[Gap]) -> pa.RecordBatch:
    """The gaps as rows of the loss table."""
    schema = TABLE.arrow_schema()

    def text(values: list[str]) -> pa.Array:
        return pa.array(values, pa.string()).dictionary_encode()

    return pa.RecordBatch.from_arrays(
        [
            text([g.stream for g in gaps]),
            pa.array([g.cpu for g in gaps], pa.int16()),
            pa.array([g.start for g in gaps], pa.int64()),
            pa.array([g.end for g in gaps], pa.int64()),
            pa.array([g.count for g in gaps], pa.int64()),
            text([g.cause for g in gaps]),
        ],
        schema=schema,
    )


def summary(gaps: list[Gap]) -> LossFacts:
    """{events, windows, unknown}: known losses, gaps, and gaps of unknown size."""
    return {
        "events": sum(g.count or 0 for g in gaps),
        "windows": len(gaps),
        "unknown": sum(g.count is None for g in gaps),
    }
