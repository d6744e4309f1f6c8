"""Tables of a page, made from frames: columns with units, and cells with a number to sort by."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.page.cells import NOTHING, cell, intervals, label
from analysis.report.tables import TABLES

MOST_ROWS = 200
MOST_CHARACTERS = 200

_MIB = 1 << 20
_UNITS = {
    "s": "s",
    "ms": "ms",
    "us": "µs",
    "ns": "ns",
    "j": "J",
    "w": "W",
    "mib": "MiB",
    "percent": "%",
    "hz": "Hz",
}
"""Units by the last word of a column's name."""
_SCALED = {
    "bytes": ("data", "MiB", 1 / _MIB),
    "ratio": ("ratio", "%", 100),
    "share": ("share", "%", 100),
    "baseload_share": ("baseload share", "%", 100),
}
"""Columns that are shown in another unit: label, unit, factor."""
_SAMPLE_UNITS = {"bytes": ("MiB", 1 / _MIB), "bytes/s": ("MiB/s", 1 / _MIB), "Hz": ("MHz", 1e-6)}
_IDENTIFIERS = ("pid", "tid", "ppid", "dev", "cpu", "epoch", "step", "ino")
"""Columns of identifiers, which are shown without thousands separators."""

_TITLES = {
    "event_counts": ("Events by role", "Role of the thread in whose context the event happened."),
    "syscalls": ("System calls of the targets", "Times are wall times, waits included."),
    "page_faults": ("Page faults by process", "Neither: failed, or not classified by perf events."),
    "fault_causes": ("Causes of page faults", "Task, file and function of the instruction."),
    "summaries": ("Counts in the kernel", "Recorded with record --summary."),
    "writeback_reasons": ("Write-backs by reason", "writeback_start events."),
    "flushed_pages": (
        "Pages written to devices, by reason",
        "Certainty: exact if kernel events tell, ambiguous if several processes had dirtied the"
        " file, inferred if a system call tells. Pages: of the whole machine. Target pages: dirtied"
        " by a target, alone or with others. Own pages: of files that the recorder wrote.",
    ),
    "writeback_intervals": (
        "Times between write-backs", "Between successive writeback_start events on one device.",
    ),
    "block_latency": (
        "Block requests",
        "Queue: queued to issued. Service: issued to completed.",
    ),
    "phases": (
        "Phases",
        "Calls and faults are those of the phase's own thread. Written pages are those of the whole"
        " machine during the phase, without the tracer's own.",
    ),
    "step_times": (
        "Time of steps by part",
        "Compute is forward, backward and optimizer. GPU times overlap CPU times.",
    ),
    "by_phase": ("Kernel activity by phase, epoch or step", "Made with report --by."),
    "counters": ("Counters", "Counted by perf stat in each target's own context."),
    "call_chains": ("Call chains to an event", "Recorded with record --callgraph."),
    "call_graphs": ("Call graphs", "Recorded with record --callgraph."),
    "samples": ("Samples", "Growth of a counter: from the first sample to the last."),
    "energy": ("Energy", "Part: contained in another row. Share: of the baseload."),
    "loss": ("Events lost", "Counts over these times are too low."),
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column's label and unit; `number`: its cells are numbers, aligned right."""

    label: str
    unit: str
    number: bool


@dataclass(frozen=True)
class Cell:
    """A cell's text, and the number to sort it by; None: it is sorted by its text."""

    text: str
    value: float | None


@dataclass(frozen=True)
class PageTable:
    """A table. `more`: the number of rows left out. `meaning`: its columns in words, or ""."""

    id: str
    title: str
    note: str
    columns: list[Column]
    rows: list[list[Cell]]
    more: int
    meaning: str


def page_tables(frames: dict[str, pd.DataFrame]) -> list[PageTable]:
    """Returns the tables of a report. An empty frame gives a table without rows."""
    return [
        page_table(name, frame, *_TITLES.get(name, (label(name).capitalize(), "")), _meaning(name))
        for name, frame in frames.items()
    ]


def page_table(
    id: str, frame: pd.DataFrame, title: str, note: str = "", meaning: str = ""
) -> PageTable:
    """Returns a frame as a table of at most `MOST_ROWS` rows; texts are cut at `MOST_CHARACTERS`.

    The columns NAME_low and NAME_high are the interval of NAME, and are shown in its cells.
    """
    shown = frame.head(MOST_ROWS)
    if {"unit", "name", "target", "last"} <= set(shown.columns):
        shown = _readable_samples(shown)
    spans = intervals([str(name) for name in shown.columns])
    ends = {end for span in spans.values() for end in span}
    columns, cells = [], []
    for name in shown.columns:
        if name in ends:
            continue
        said, unit, factor = _SCALED.get(str(name), (*_unit(str(name)), 1.0))
        number = pd.api.types.is_numeric_dtype(shown[name]) and not pd.api.types.is_bool_dtype(
            shown[name]
        )
        identifier = str(name) in _IDENTIFIERS
        columns.append(Column(said, unit, number))
        made = [_cell(value, factor, identifier) for value in _plain(shown[name])]
        if name in spans:
            low, high = (
                [_cell(value, factor, identifier) for value in _plain(shown[end])]
                for end in spans[name]
            )
            made = [_spanned(*three) for three in zip(made, low, high, strict=True)]
        cells.append(made)
    rows = [list(row) for row in zip(*cells, strict=True)] if cells else []
    return PageTable(id, title, note, columns, rows, len(frame) - len(shown), meaning)


def _plain(values: pd.Series[Any]) -> list[Any]:
    return [
        None if not isinstance(value, list | dict) and pd.isna(value) else _python(value)
        for value in values
    ]


def _python(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _cell(value: Any, factor: float, identifier: bool) -> Cell:
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = cell(value)
        cut = f"{text[:MOST_CHARACTERS]}…" if len(text) > MOST_CHARACTERS else text
        return Cell(cut, None)
    if identifier:
        return Cell(str(value), float(value))
    scaled = value * factor if factor != 1 else value
    finite = math.isfinite(scaled)
    return Cell(cell(scaled) if finite else NOTHING, float(scaled) if finite else None)


def _spanned(middle: Cell, low: Cell, high: Cell) -> Cell:
    """Returns a value with its interval in brackets; a dash is an end that is not known."""
    if middle.value is None or (low.value is None and high.value is None):
        return middle
    return Cell(f"{middle.text} [{low.text}, {high.text}]", middle.value)


def _unit(name: str) -> tuple[str, str]:
    """Returns a column's label and unit: "total" and "s" for total_s."""
    words, _, last = name.rpartition("_")
    return (label(words), _UNITS[last]) if words and last in _UNITS else (label(name), "")


def _readable_samples(frame: pd.DataFrame) -> pd.DataFrame:
    """Converts samples from bytes and Hz to MiB and MHz."""
    factors = frame["unit"].map(lambda unit: _SAMPLE_UNITS.get(unit, (unit, 1.0))[1])
    units = frame["unit"].map(lambda unit: _SAMPLE_UNITS.get(unit, (unit, 1.0))[0])
    values = {
        name: pd.to_numeric(frame[name]) * factors
        for name in ("min", "mean", "max", "last", "growth")
        if name in frame
    }
    return frame.assign(unit=units, **values)


def _meaning(name: str) -> str:
    """Returns the description of a report's table, which is its function's docstring, or ""."""
    made = TABLES.get(name)
    return (inspect.getdoc(made[0]) or "") if made is not None else ""
