"""The table `samples`: the sampler's readings, and rates computed from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tracer.probes.errors import BadTrace
from tracer.probes.sampler.catalogue import SERIES
from tracer.probes.samples import TABLE
from tracer.store.checked import json_lines, what_is_wrong
from tracer.store.lists import SampleFacts
from tracer.store.manifest import Manifest
from tracer.store.manifest_parts import TableFacts
from tracer.store.tables import TableWriter, batch_of

FILE = "samples.jsonl"
_BATCH = 1 << 16
_LEAST_S, _LEAST_PERIODS = 0.05, 0.25
"""Least time for a rate, in s and in periods of sampling: the shorter of both."""
_LEAST_IN_TICKS_S = 0.2
"""The same for counters in ticks of 10 ms: a tick is then 5 % of a CPU."""

_Row = tuple[int, str | None, str, str | None, float, str]


def decode(raw: Path, manifest: Manifest, building: Path) -> dict[str, TableFacts]:
    """Writes the table, if samples were taken. Raises BadTrace for an unreadable file."""
    if not manifest.get("samples", {}).get("hz"):
        return {}
    writer = TableWriter(TABLE, building)
    try:
        rows: list[_Row] = []
        names = [target["name"] for target in manifest["targets"]]
        for row in _rows(raw / FILE, names, _LEAST_PERIODS / manifest["samples"]["hz"]):
            rows.append(row)
            if len(rows) == _BATCH:
                writer.add(batch_of(TABLE, rows))
                rows = []
        writer.add(batch_of(TABLE, rows))
        writer.close()
    finally:
        writer.discard()
    return {TABLE.name: {"rows": writer.rows, "bytes": writer.path.stat().st_size}}


def _rows(path: Path, targets: list[str], most_s: float) -> Iterator[_Row]:
    """Yields each reading and, for a counter, its rate since an earlier reading.

    That is the last one at least `_LEAST_S` before, or `most_s` if that is less: the last reading
    of a recording may follow another one at once, and many counters count in steps. The first rate
    may be over less time, but not that of a counter in ticks. A counter that has decreased was
    reset and yields no rate.
    """
    before: dict[tuple[int, str, str | None], tuple[int, float]] = {}
    rated: set[tuple[int, str, str | None]] = set()
    for ts, number, readings in _lines(path):
        if number >= len(targets):
            raise BadTrace(f"{path} names target {number}, which does not exist", "record again")
        target = None if number < 0 else targets[number]
        for name, instance, value in readings:
            series = SERIES.get(name)
            if series is None:
                raise BadTrace(f"{path} has an unknown series {name[:40]!r}", "record again")
            yield ts, target, name, instance, value, series.unit
            if series.rate is None:
                continue
            key = number, name, instance
            then, less = before.get(key, (ts, value))
            least_s = min(_LEAST_IN_TICKS_S if series.in_ticks else _LEAST_S, most_s)
            held_to_it = key in (before if series.in_ticks else rated)
            if held_to_it and value >= less and ts - then < least_s * 1e9:
                continue
            before[key] = ts, value
            if ts > then and value >= less:
                rated.add(key)
                rate = (value - less) / ((ts - then) / 1e9) * series.rate.scale
                yield ts, target, series.rate.name, instance, rate, series.rate.unit


def _lines(path: Path) -> Iterator[SampleFacts]:
    """Yields the complete lines."""
    try:
        yield from json_lines(path, SampleFacts)
    except (OSError, ValueError) as error:
        raise BadTrace(f"{path} is damaged: {what_is_wrong(error)}", "record again") from None
