"""Every gap in a recording: which stream, which CPU, between when and when, how many events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from probes.backends.timeline import RawStream
from probes.loss import TABLE, Gap
from tracer.store.manifest import LossFacts

_MISSING = "missing from file"
_MOST_EVENTS = (1 << 63) - 1
_AT_THE_END = ("never read", "torn end", _MISSING)


def uncounted(
    gaps: Iterable[Gap],
    stats: Mapping[str, Mapping[str, int]],
    streams: Iterable[RawStream],
) -> list[Gap]:
    """Gaps for what the kernel counted as lost beyond the gaps found in the streams.

    `stats` are the kernel's own counters of each stream at the end of the recording. Events that
    were logged but never read, or read and are not in the file (the disk was full, the recorder
    killed, the file cut), lie after the stream's last. Others lie where the buffer was seen
    full, or it is not known where.
    """
    found: list[Gap] = []
    located: dict[tuple[str, str], int] = {}
    for gap in gaps:
        key = (gap.stream, gap.cause)
        located[key] = located.get(key, 0) + (gap.count or 0)
    for stream in streams:
        counters = stats.get(stream.name, {})
        lost = {
            "buffer overrun": counters.get("overrun", 0),
            "write contention": counters.get("commit overrun", 0),
            "buffer full": counters.get("dropped events", 0),
            "never read": counters.get("entries", 0),
        }
        if "read events" in counters and not stream.damaged:
            cause = "torn end" if stream.torn_bytes else _MISSING
            lost[cause] = counters["read events"] - stream.events
        for cause, counted in lost.items():
            # The rest is of gaps whose size the streams do not tell.
            count = counted - located.get((stream.name, cause), 0)
            if count > 0:
                start, end = None, None
                if cause in _AT_THE_END:
                    start = stream.last_seen or None
                elif cause == "buffer full" and stream.full:
                    start, end = stream.full[0][0], stream.full[-1][1]
                found.append(Gap(stream.name, stream.cpu, start, end, count, cause))
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
        "events": min(sum(g.count or 0 for g in gaps), _MOST_EVENTS),
        "windows": len(gaps),
        "unknown": sum(g.count is None for g in gaps),
    }
