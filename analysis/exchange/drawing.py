"""A trace as tracks and marks, which `tracer export` writes for viewers.

| track | marks |
| --- | --- |
| process > thread | phases (stage, epoch, step and its parts) as nested slices |
| thread > system calls | a slice per call; a call that did not return is an instant |
| thread > page faults | an instant per fault |
| block device > queued, in service | a slice per request; one that did not complete is an instant |
| block device > write-back by reason | a slice per pass; one without a known end is an instant |
| block device > folios made dirty | a counter, per 10 ms |
| samples | a counter per series |
| lost events | a slice per gap |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracer.analysis.exchange.marks import (
    LATEST_NS,
    Kind,
    Marks,
    Texts,
    Track,
    What,
    notes_of,
    numbers_of,
    readable,
    same,
    texts_of,
)
from tracer.analysis.exchange.streaming import query_batches, table_batches
from tracer.analysis.exchange.tracks import Lanes, Tracks, crowded, nested
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.phases.phase_times import make_phase_times
from tracer.analysis.views.writing.passes import passes
from tracer.probes.loss import OF_EVENTS
from tracer.store.trace import Trace

_DIRTY_BIN_NS = 10_000_000


@dataclass(frozen=True)
class Window:
    """The time span to show, in ns; marks without an end of their own end at `last`.

    Slices that lie in it only in part are cut.
    """

    start: int
    end: int
    last: int


def draw(trace: Trace, window: Window) -> Iterator[Track | Marks]:
    """Yields the tracks and marks of a trace within a window, each track before its marks.

    A track without marks, and without tracks below it that have some, is not yielded. Tables that
    the trace lacks are left out. Raises BadTrace if a table is damaged.
    """
    names: dict[int, str] = {}
    if "processes" in trace.tables:
        for batch in table_batches(trace, "processes", ["tid", "comm"]):
            found = texts_of(batch.column("comm"))
            for tid, code in zip(batch.column("tid").to_pylist(), found.codes, strict=True):
                names[tid] = found.values[code] if code >= 0 else ""
    tracks = Tracks(names)
    parts = {
        "phases": _phases,
        "loss": _losses,
        "writeback": _writebacks,
        "samples": _samples,
        "dirty": _dirtied,
        "block": _requests,
        "page_faults": _faults,
        "syscalls": _calls,
    }
    for table, part in parts.items():
        if table not in trace.tables:
            continue
        for marks in part(trace, tracks, window):
            shown = marks.possible().within(window.start, window.end)
            if len(shown):
                yield from tracks.taken(shown)
                yield shown


def _tracks_by_row(pids: pa.Array, tids: pa.Array, make: Any) -> Any:
    """Returns the track number of each row by its process and thread."""
    pid, known = numbers_of(pids)
    tid, _ = numbers_of(tids)
    keys = np.stack([np.where(known, pid, -1), tid], axis=1)
    unique, codes = np.unique(keys, axis=0, return_inverse=True)
    numbers = [make(None if p < 0 else int(p), int(t)) for p, t in unique.tolist()]
    return np.array(numbers, np.int64)[codes.reshape(-1)]


def _overlapping(batch: pa.RecordBatch, window: Window, dur: str = "") -> pa.RecordBatch:
    """Returns the rows that overlap the window."""
    ts = batch.column("ts")
    after = pc.add(ts, pc.coalesce(batch.column(dur), 0)) if dur else ts
    kept = pc.and_(pc.greater_equal(after, window.start), pc.less_equal(ts, window.end))
    return batch.filter(kept)


def _calls(trace: Trace, tracks: Tracks, window: Window) -> Iterator[Marks]:
    columns = ["ts", "pid", "tid", "name", "dur_ns", "ret"]
    for batch in table_batches(trace, "syscalls", columns):
        batch = _overlapping(batch, window, "dur_ns")
        track = _tracks_by_row(
            batch.column("pid"),
            batch.column("tid"),
            lambda pid, tid: tracks.of_thread(pid, tid, "system calls"),
        )
        dur, returned = numbers_of(batch.column("dur_ns"))
        every = Marks(
            What.SLICES,
            "syscall",
            track,
            batch.column("ts").to_numpy(),
            texts_of(batch.column("name")),
            dur,
            numbers={"ret": notes_of(batch.column("ret"))},
        )
        yield every.where(returned)
        yield every.where(~returned).instants()


def _faults(trace: Trace, tracks: Tracks, window: Window) -> Iterator[Marks]:
    columns = ["ts", "pid", "tid", "kind", "address", "file", "symbol"]
    for batch in table_batches(trace, "page_faults", columns):
        batch = _overlapping(batch, window)
        track = _tracks_by_row(
            batch.column("pid"),
            batch.column("tid"),
            lambda pid, tid: tracks.of_thread(pid, tid, "page faults"),
        )
        kind = texts_of(batch.column("kind"))
        kind.values = [f"{value} fault" for value in kind.values]
        yield Marks(
            What.INSTANTS,
            "fault",
            track,
            batch.column("ts").to_numpy(),
            kind,
            numbers={"address": notes_of(batch.column("address"))},
            texts={name: texts_of(batch.column(name)) for name in ("file", "symbol")},
        )


def _phases(trace: Trace, tracks: Tracks, window: Window) -> Iterator[Marks]:
    make_phase_times(trace)
    sql = f"""
        SELECT start AS ts, coalesce(until, greatest({window.last}, start)) AS stop,
            pid, tid, name, epoch, step, source
        FROM phase_times
        WHERE start <= {window.end} AND coalesce(until, {LATEST_NS}) >= {window.start}
        ORDER BY pid, tid, start, stop DESC
    """
    lanes: list[list[int]] = []
    of: tuple[Any, Any] | None = None
    for batch in query_batches(trace, sql):
        numbers = []
        columns = [batch.column(name).to_pylist() for name in ("pid", "tid", "ts", "stop")]
        for pid, tid, ts, stop in zip(*columns, strict=True):
            if of != (pid, tid):
                of, lanes = (pid, tid), []
            lane = nested(lanes, ts, stop)
            if lane:
                name = "phases that overlap"
                parent = tracks.thread(pid, tid or 0)
                numbers.append(tracks.track(Kind.SLICES, (name, parent, lane), name, parent=parent))
            else:
                numbers.append(tracks.thread(pid, tid or 0))
        ts = batch.column("ts").to_numpy()
        yield Marks(
            What.SLICES,
            "phase",
            np.array(numbers, np.int64),
            ts,
            texts_of(batch.column("name")),
            batch.column("stop").to_numpy() - ts,
            numbers={name: notes_of(batch.column(name)) for name in ("epoch", "step")},
            texts={"source": texts_of(batch.column("source"))},
        )


def _requests(trace: Trace, tracks: Tracks, window: Window) -> Iterator[Marks]:
    view = requests(trace)
    if not trace.sql(f"SELECT count(*) AS n FROM {view}")["n"][0]:
        yield from _bios(trace, tracks, window)
        return
    for name, begin, stop in (
        ("queued", "queue_ns", "issue_ns"),
        ("in service", "issue_ns", "complete_ns"),
    ):
        lanes: dict[str, Lanes] = {}
        sql = f"""
            SELECT {begin} AS ts, coalesce({stop}, {begin}) AS until, {stop} IS NOT NULL AS ended,
                dev, operation, rwbs, sector, nr_sector, pid, error
            FROM {view} WHERE {begin} <= {window.end} AND until >= {window.start} AND until >= ts
            ORDER BY {begin}
        """
        for batch in query_batches(trace, sql):
            dev = texts_of(batch.column("dev"))
            ts, after = batch.column("ts").to_numpy(), batch.column("until").to_numpy()
            ended = batch.column("ended").to_numpy(zero_copy_only=False)
            numbers, places = [], []
            for code, from_ns, to_ns in zip(
                dev.codes.tolist(), ts.tolist(), after.tolist(), strict=True
            ):
                device = dev.values[code] if code >= 0 else "?"
                lane = lanes.setdefault(device, Lanes()).lane(from_ns, to_ns)
                places.append(lane)
                numbers.append(tracks.of_device(device, f"requests {name}", lane))
            slices = Marks(
                What.SLICES,
                "block",
                np.array(numbers, np.int64),
                ts,
                texts_of(batch.column("operation")),
                after - ts,
                numbers={
                    one: notes_of(batch.column(one))
                    for one in ("sector", "nr_sector", "pid", "error")
                },
                texts={"rwbs": texts_of(batch.column("rwbs"))},
            )
            yield from crowded(slices.where(ended), np.array(places)[ended])
            yield slices.where(~ended).instants()


def _bios(trace: Trace, tracks: Tracks, window: Window) -> Iterator[Marks]:
    """Yields each bio as an instant, for traces without requests."""
    columns = ["ts", "event", "dev", "sector", "nr_sector", "rwbs", "pid"]
    for batch in table_batches(trace, "block", columns):
        batch = _overlapping(batch, window)
        batch = batch.filter(pc.equal(batch.column("event").cast(pa.string()), "bio_queue"))
        dev = texts_of(batch.column("dev"))
        devices = [tracks.of_device(value, "bios queued") for value in dev.values]
        known = dev.codes >= 0
        if not known.any():
            continue
        batch = batch.filter(pa.array(known))
        yield Marks(
            What.INSTANTS,
            "block",
            np.array(devices, np.int64)[dev.codes[known]],
            batch.column("ts").to_numpy(),
            texts_of(batch.column("rwbs")),
            numbers={n: notes_of(batch.column(n)) for n in ("sector", "nr_sector", "pid")},
        )


def _writebacks(trace: Trace, tracks: Tracks, window: Window) -> Iterator[Marks]:
    """Yields passes of the flusher; one without a known end is an instant."""
    sql = f"""
        SELECT ts, coalesce("end", ts) AS stop, "end" IS NOT NULL AS ended, reason, bdi, nr_pages,
            tid
        FROM {passes(trace)} WHERE ts <= {window.end} AND stop >= {window.start} ORDER BY ts
    """
    lanes: dict[tuple[str, str], Lanes] = {}
    for batch in query_batches(trace, sql):
        ts, after = batch.column("ts").to_numpy(), batch.column("stop").to_numpy()
        numbers, places = [], []
        reason = texts_of(batch.column("reason"))
        bdi = texts_of(batch.column("bdi"))
        for n, (from_ns, to_ns) in enumerate(zip(ts.tolist(), after.tolist(), strict=True)):
            why = reason.values[reason.codes[n]] if reason.codes[n] >= 0 else "unknown"
            device = bdi.values[bdi.codes[n]] if bdi.codes[n] >= 0 else "?"
            lane = lanes.setdefault((device, why), Lanes()).lane(from_ns, to_ns)
            places.append(lane)
            numbers.append(tracks.of_device(device, f"write-back: {why}", lane))
        slices = Marks(
            What.SLICES,
            "writeback",
            np.array(numbers, np.int64),
            ts,
            reason,
            after - ts,
            numbers={name: notes_of(batch.column(name)) for name in ("nr_pages", "tid")},
        )
        ended = batch.column("ended").to_numpy(zero_copy_only=False)
        yield from crowded(slices.where(ended), np.array(places)[ended])
        yield slices.where(~ended).instants()


def _dirtied(trace: Trace, tracks: Tracks, window: Window) -> Iterator[Marks]:
    """Yields the folios made dirty per 10 ms; a bin without any begins with 0."""
    sql = f"""
        WITH bins AS (
            SELECT dev, ts // {_DIRTY_BIN_NS} AS bin, count(*) AS n FROM dirty
            WHERE event = 'dirty_folio' AND ts BETWEEN {window.start} AND {window.end} GROUP BY ALL
        ), next AS (
            SELECT *, lead(bin) OVER (PARTITION BY dev ORDER BY bin) AS then_bin FROM bins
        )
        SELECT dev, bin * {_DIRTY_BIN_NS} AS ts, n::DOUBLE AS value FROM next
        UNION ALL
        SELECT dev, (bin + 1) * {_DIRTY_BIN_NS}, 0.0 FROM next
        WHERE then_bin IS DISTINCT FROM bin + 1
        ORDER BY ts
    """
    for batch in query_batches(trace, sql):
        dev = texts_of(batch.column("dev"))
        counters = []
        # The last one is for rows without a device.
        for device in [*dev.values, *(["?"] if (dev.codes < 0).any() else [])]:
            parent = tracks.track(Kind.GROUP, ("device", device), f"block device {device}")
            name = "folios made dirty, per 10 ms"
            counters.append(
                tracks.track(Kind.COUNTER, (name, parent), name, parent=parent, unit="folios")
            )
        yield Marks(
            What.COUNTERS,
            "dirty",
            np.array(counters, np.int64)[dev.codes],
            batch.column("ts").to_numpy(),
            same("", batch.num_rows),
            value=batch.column("value").to_numpy(),
        )


def _samples(trace: Trace, tracks: Tracks, window: Window) -> Iterator[Marks]:
    columns = ["ts", "target", "name", "instance", "value", "unit"]
    for batch in table_batches(trace, "samples", columns):
        batch = _overlapping(batch, window)
        batch = batch.filter(batch.column("value").is_valid())
        named = [texts_of(batch.column(name)) for name in ("target", "name", "instance", "unit")]
        keys = np.stack([texts.codes for texts in named], axis=1)
        unique, codes = np.unique(keys, axis=0, return_inverse=True)
        counters = [_counter(tracks, *_values(named, row)) for row in unique.tolist()]
        if not counters:
            continue
        yield Marks(
            What.COUNTERS,
            "sample",
            np.array(counters, np.int64)[codes.reshape(-1)],
            batch.column("ts").to_numpy(),
            same("", batch.num_rows),
            value=batch.column("value").to_numpy(zero_copy_only=False),
        )


def _values(named: list[Texts], row: list[int]) -> list[str]:
    return [texts.values[c] if c >= 0 else "" for texts, c in zip(named, row, strict=True)]


def _counter(tracks: Tracks, target: str, name: str, instance: str, unit: str) -> int:
    """Returns the counter track of a series, below the group of its target."""
    group = f"samples of {target}" if target else "samples of the machine"
    parent = tracks.track(Kind.GROUP, ("samples", target), group)
    shown = f"{name} {instance}".strip()
    key = ("sample", target, name, instance, unit)
    return tracks.track(Kind.COUNTER, key, shown, parent=parent, unit=unit)


def _losses(trace: Trace, tracks: Tracks, window: Window) -> Iterator[Marks]:
    """Yields gaps of lost events; a gap without begin or end extends to that of the window."""
    first = max(window.start, int(trace.manifest["clock"]["start_ns"]))
    sql = f"""
        SELECT * FROM (
            SELECT greatest(coalesce("from", {first}), 0) AS ts,
                coalesce("to", greatest({window.last}, coalesce("from", 0))) AS stop,
                stream, cpu, count, cause FROM loss WHERE {OF_EVENTS}
        ) WHERE ts <= {window.end} AND stop >= {window.start} AND stop >= ts ORDER BY ts
    """
    lanes: dict[str, Lanes] = {}
    for batch in query_batches(trace, sql):
        ts, after = batch.column("ts").to_numpy(), batch.column("stop").to_numpy()
        streams = readable(batch.column("stream"))
        group = tracks.track(Kind.GROUP, ("loss",), "lost events")
        numbers, places = [], []
        for stream, from_ns, to_ns in zip(streams, ts.tolist(), after.tolist(), strict=True):
            lane = lanes.setdefault(stream, Lanes()).lane(from_ns, to_ns)
            places.append(lane)
            name = f"lost from {stream}"
            numbers.append(tracks.track(Kind.SLICES, (name, group, lane), name, parent=group))
        slices = Marks(
            What.SLICES,
            "loss",
            np.array(numbers, np.int64),
            ts,
            texts_of(batch.column("cause")),
            after - ts,
            numbers={name: notes_of(batch.column(name)) for name in ("count", "cpu")},
        )
        yield from crowded(slices, np.array(places))
