"""The report of many traces: what adds up is added up, the rest stands side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.findings.finding import Finding
from analysis.report.gathered import Gathered
from analysis.report.tables import MERGEABLE, TABLES

TRACE = "trace"
"""The first column of a table in which traces stand side by side: their names."""

SAME = (
    "over all traces a process is told by its number, name and role, a device by its number, "
    "whatever machine it was of"
)
"""What has to be said of tables that are added up."""

_AT_ONCE = 16
"""Parts that are added up together, so that no more than these are held, however many traces."""
_MOST_NAMES = 4


@dataclass(frozen=True)
class Together:
    """Many traces in one report.

    `traces`: the facts of each (`Gathered.facts`, and its notes), by name. `tables`: as of one
    trace; those in `MERGEABLE` over all traces, the others with a first column `trace`. `of`: the
    traces that each table is of, where these are not all. `notes`: sentences, each once.
    `findings`: of all, each with its trace, what weighs most first.
    """

    traces: dict[str, dict[str, Any]]
    tables: dict[str, pd.DataFrame]
    of: dict[str, list[str]]
    notes: list[str]
    findings: list[tuple[str, Finding]]


def together(named: Iterable[tuple[str, Gathered]]) -> Together:
    """One report of traces, by their names. Each is looked at once and let go."""
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
                parts[key] = [MERGEABLE[key].together(held)]
        for key, frame in one.tables.items():
            of.setdefault(key, []).append(name)
            others.setdefault(key, []).append((name, frame))
    tables = {
        key: MERGEABLE[key].finish(MERGEABLE[key].together(held)) for key, held in parts.items()
    }
    tables |= {key: beside(held) for key, held in others.items()}
    partly = {key: names for key, names in of.items() if len(names) < len(traces)}
    return Together(
        traces,
        {key: tables[key] for key in dict.fromkeys([*TABLES, *others]) if key in tables},
        partly,
        _notes(traces, [names for names in copies.values() if len(names) > 1], partly),
        sorted(findings, key=lambda found: -found[1].weight),
    )


def beside(named: Iterable[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Frames of traces below each other: their names in a first column `trace`, then the columns of
    all. What a trace lacks is null."""
    frames = []
    for name, frame in named:
        found = frame.copy()
        names = pd.Series([name] * len(frame), index=frame.index, dtype=object)
        found.insert(0, TRACE, names)
        frames.append(found)
    # Of none but empty ones the first; they would else take a part in the columns' types.
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    columns = dict.fromkeys(column for frame in frames for column in frame.columns)
    return pd.concat(filled, ignore_index=True).reindex(columns=list(columns))


def _notes(
    traces: Mapping[str, Mapping[str, Any]],
    copies: Sequence[Sequence[str]],
    partly: Mapping[str, Sequence[str]],
) -> list[str]:
    """What is to be said of all; what traces say, each sentence once."""
    said: dict[str, list[str]] = {}
    for name, facts in traces.items():
        for note in facts["notes"]:
            said.setdefault(note, []).append(name)
    return [
        *(
            f"{_some(names)} are one and the same recording, which counts so often"
            for names in copies
        ),
        *(
            note if len(names) == len(traces) else f"{_some(names)}: {note}"
            for note, names in said.items()
        ),
        *(f"the table {key} is of {_some(names)} alone" for key, names in partly.items()),
        SAME,
    ]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
