"""The report of many traces: tables are added up where possible; others list every trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracer.analysis.findings.finding import Finding
from tracer.analysis.report.gathered import Gathered
from tracer.analysis.report.tables import DECLARED, MERGED

TRACE = "trace"
"""The first column of a table that lists several traces: the name of the trace."""

SAME = (
    "tables over all traces identify a process by its pid, name and role, and a device by its "
    "number, also if the traces are from different machines"
)
"""Note on tables that are added up."""

_AT_ONCE = 16
"""Parts that are added up at once. It bounds the parts in memory for any number of traces."""
_MOST_NAMES = 4


@dataclass(frozen=True)
class Together:
    """Many traces in one report.

    `traces`: the facts of each trace (`Gathered.facts` and its notes), by name. `tables`: the
    tables in `MERGED` over all traces, the others with a first column `trace`. `of`: the traces
    of each table that not all traces have. `notes`: sentences, each once. `findings`: those of all
    traces, each with its trace, the most important one first.
    """

    traces: dict[str, dict[str, Any]]
    tables: dict[str, pd.DataFrame]
    of: dict[str, list[str]]
    notes: list[str]
    findings: list[tuple[str, Finding]]


def together(named: Iterable[tuple[str, Gathered]]) -> Together:
    """Merges the reports of named traces. It reads each report once and does not keep it."""
    traces: dict[str, dict[str, Any]] = {}
    parts: dict[str, list[pd.DataFrame]] = {}
    others: dict[str, list[tuple[str, pd.DataFrame]]] = {}
    of: dict[str, list[str]] = {}
    findings: list[tuple[str, Finding]] = []
    copies: dict[tuple[object, ...], list[str]] = {}
    for name, one in named:
        if one.recording is not None:
            copies.setdefault(one.recording, []).append(name)
        traces[name] = {**one.facts, "notes": one.notes}
        findings += [(name, found) for found in one.findings]
        for key, frame in one.parts.items():
            of.setdefault(key, []).append(name)
            held = parts.setdefault(key, [])
            held.append(frame)
            if len(held) >= _AT_ONCE:
                parts[key] = [MERGED[key].together(held)]
        for key, frame in one.tables.items():
            of.setdefault(key, []).append(name)
            others.setdefault(key, []).append((name, frame))
    tables = {key: MERGED[key].finish(MERGED[key].together(held)) for key, held in parts.items()}
    tables |= {key: beside(held) for key, held in others.items()}
    partly = {key: names for key, names in of.items() if len(names) < len(traces)}
    return Together(
        traces,
        {key: tables[key] for key in DECLARED if key in tables},
        partly,
        _notes(traces, [names for names in copies.values() if len(names) > 1], partly),
        sorted(findings, key=lambda found: -found[1].weight),
    )


def beside(named: Iterable[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Concatenates frames of named traces.

    Columns: trace (the name), then the columns of all frames; null where a trace lacks a column.
    """
    frames = []
    for name, frame in named:
        found = frame.copy()
        names = pd.Series([name] * len(frame), index=frame.index, dtype=object)
        found.insert(0, TRACE, names)
        frames.append(found)
    # Empty frames would change the types of columns. If all frames are empty, keep the first.
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    columns = dict.fromkeys(column for frame in frames for column in frame.columns)
    return pd.concat(filled, ignore_index=True).reindex(columns=list(columns))


def _notes(
    traces: Mapping[str, Mapping[str, Any]],
    copies: Sequence[Sequence[str]],
    partly: Mapping[str, Sequence[str]],
) -> list[str]:
    """Returns the notes on all traces, and each note of the traces once."""
    said: dict[str, list[str]] = {}
    for name, facts in traces.items():
        for note in facts["notes"]:
            said.setdefault(note, []).append(name)
    return [
        *(
            f"{_some(names)} are the same recording, which is counted {len(names)} times"
            for names in copies
        ),
        *(
            note if len(names) == len(traces) else f"{_some(names)}: {note}"
            for note, names in said.items()
        ),
        *(f"the table {key} covers only {_some(names)}" for key, names in partly.items()),
        SAME,
    ]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
