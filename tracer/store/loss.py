"""Every gap in a recording: its stream, CPU, time span and number of lost events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import pyarrow as pa

from tracer.probes.backends.perf_tools.perf_data import STREAM as CALL_GRAPHS
from tracer.probes.backends.timeline import RawStream
from tracer.probes.loss import TABLE, Gap, fitting
from tracer.probes.symbols.budget import Reason
from tracer.store import listed
from tracer.store.lists import CpuFacts
from tracer.store.manifest import Manifest, end_unknown
from tracer.store.manifest_parts import LossFacts

NEW_CPUS = "new_cpus.jsonl"
"""The list of the CPUs that came online during the recording (`CpuFacts`)."""

_SYMBOLS = "symbols"
_MISSING = "missing from file"
_MOST_KINDS = 16
"""Most kinds of streams of one CPU: there are seven, and a foreign trace may name any number."""
_NEW_CPU = "CPU came online during the recording"
_AT_THE_END = ("never read", "torn end", _MISSING)


def uncounted(
    gaps: Iterable[Gap],
    stats: Mapping[str, Mapping[str, int]],
    streams: Iterable[RawStream],
) -> list[Gap]:
    """Returns gaps for losses that the kernel counted beyond the gaps found in the streams.

    `stats` are the kernel's counters of each stream at the end of the recording. Events that were
    logged but never read, or read but missing from the file (disk full, recorder killed, file
    cut), get a gap after the stream's last event. Other losses get a gap while the buffer was
    full, or a gap without a known time.
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
            "another BPF program ran": counters.get("missed", 0),
        }
        if "read events" in counters and not stream.damaged:
            cause = "torn end" if stream.torn_bytes else _MISSING
            lost[cause] = counters["read events"] - stream.events
        for cause, counted in lost.items():
            # Gaps of unknown size in the streams may include the rest.
            count = counted - located.get((stream.name, cause), 0)
            if count > 0:
                start, end = None, None
                if cause in _AT_THE_END:
                    start = stream.last_seen or None
                elif cause == "buffer full" and stream.full:
                    start, end = stream.full[0][0], stream.full[-1][1]
                found.append(Gap(stream.name, stream.cpu, start, end, count, cause))
    return found


def at_the_end(manifest: Manifest, streams: Iterable[RawStream]) -> list[Gap]:
    """Returns a gap after each stream whose last events did not reach its file.

    `manifest` has the end of the recording. Events that the kernel counted are `uncounted`.
    """
    causes = {
        "killed": "recorder killed or disk full" if end_unknown(manifest) else "recorder killed",
        "disk": "disk full",
        "error": "not moved after an error",
    }
    stats, ended_by = manifest["capture"].get("stats", {}), manifest.get("ended_by") or ""
    gaps = []
    for stream in streams:
        counters = stats.get(stream.name, {})
        if "read events" in counters:
            continue  # events that did not reach the file are counted already
        saved = ended_by == "killed" and counters  # the guardian moved the rest
        cause = None if saved else causes.get(ended_by)
        if stream.torn_bytes:
            cause = "torn end"
        if cause is not None:
            gaps.append(Gap(stream.name, stream.cpu, stream.last_seen or None, None, None, cause))
    return gaps


def of_new_cpus(
    raw: Path, streams: Iterable[RawStream], callgraphs: bool, start_ns: int
) -> list[Gap]:
    """Returns a gap for each CPU that came online during the recording and each kind of stream.

    Only the CPUs of the start have streams, and `perf record`'s call graphs are of them, too.
    Raises BadTrace if the list is damaged.
    """
    cpus = dict(listed.read(raw / NEW_CPUS, CpuFacts))
    kinds = dict.fromkeys(s.name.removesuffix(str(s.cpu)) for s in streams if s.cpu >= 0)
    gaps = []
    for cpu, absent_ns in cpus.items():
        names = [f"{kind}{cpu}" for kind in islice(kinds, _MOST_KINDS)]
        for name in [*names, CALL_GRAPHS] if callgraphs else names:
            gaps.append(Gap(name, cpu, max(absent_ns, start_ns), None, None, _NEW_CPU))
    return gaps


def of_functions(left_out: Mapping[Reason, int], start_ns: int, end_ns: int | None) -> list[Gap]:
    """Returns a gap for each reason for which functions were not looked up."""
    gaps = []
    for why, count in left_out.items():
        what = "names of functions" if why == Reason.NAMES else "files' functions"
        gaps.append(Gap(_SYMBOLS, -1, start_ns, end_ns, None, f"{count} {what} left out: {why}"))
    return gaps


def rows(gaps: list[Gap]) -> pa.RecordBatch:
    """Returns the gaps as rows of the loss table."""
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
    """Returns the numbers of lost events and of gaps."""
    of_events = [gap for gap in gaps if gap.of_events]
    return {
        "events": fitting(sum(gap.count or 0 for gap in of_events)),
        "windows": len(of_events),
        "unknown": sum(gap.count is None for gap in of_events),
        "others": len(gaps) - len(of_events),
    }
