"""The table `samples`: readings as the sampler appended them, and rates between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from probes.errors import BadTrace
from probes.sampler.catalogue import SERIES
from probes.samples import TABLE
from tracer.store.checked import checker, what_is_wrong
from tracer.store.lists import SampleFacts
from tracer.store.manifest import Manifest, TableFacts
from tracer.store.tables import TableWriter, batch_of

FILE = "samples.jsonl"
_MAX_LINE = 16 << 20
_BATCH = 1 << 16

_Row = tuple[int, str | None, str, str | None, float, str]


def decode(raw: Path, manifest: Manifest, building: Path) -> dict[str, TableFacts]:
    """Write the table, where samples were taken. Raises BadTrace for a file that cannot be read."""
    if not manifest.get("samples", {}).get("hz"):
        return {}
    writer = TableWriter(TABLE, building)
    try:
        rows: list[_Row] = []
        for row in _rows(raw / FILE, [target["name"] for target in manifest["targets"]]):
            rows.append(row)
            if len(rows) == _BATCH:
                writer.add(batch_of(TABLE, rows))
                rows = []
        writer.add(batch_of(TABLE, rows))
        writer.close()
    finally:
        writer.discard()
    return {TABLE.name: {"rows": writer.rows, "bytes": writer.path.stat().st_size}}


def _rows(path: Path, targets: list[str]) -> Iterator[_Row]:
    """Each reading, and with a counter's its rate since the reading before.

    A counter that has fallen was set back: it has no rate then.
    """
    before: dict[tuple[int, str, str | None], tuple[int, float]] = {}
    for ts, number, readings in _lines(path):
        if number >= len(targets):
            raise BadTrace(f"{path} names a target {number} that is not there", "record again")
        target = None if number < 0 else targets[number]
        for name, instance, value in readings:
            series = SERIES.get(name)
            if series is None:
                raise BadTrace(f"{path} has a series {name[:40]!r} that cannot be", "record again")
            yield ts, target, name, instance, value, series.unit
            if series.rate is None:
                continue
            then, less = before.get((number, name, instance), (ts, value))
            before[number, name, instance] = ts, value
            if ts > then and value >= less:
                rate = (value - less) / ((ts - then) / 1e9) * series.rate.scale
                yield ts, target, series.rate.name, instance, rate, series.rate.unit


def _lines(path: Path) -> Iterator[SampleFacts]:
    """The lines that were written whole."""
    check = checker(SampleFacts)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            while line := file.readline(_MAX_LINE):
                if len(line) == _MAX_LINE:
                    raise BadTrace(f"{path} has a line without an end", "record again")
                if line.endswith(b"\n"):  # else the recorder was killed while it wrote
                    yield check.validate_json(line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}", "record again") from None
    except ValueError as error:
        raise BadTrace(f"{path} is damaged: {what_is_wrong(error)}", "record again") from None
