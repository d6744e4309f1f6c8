"""The papers' tables and figures for any traces: one, or several of different places.

The identity of a trace comes from `tracer.analysis.studies.identity`. Tables that compare places or
repeats have no ratios and no intervals if there is only one trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tracer.analysis.page.paper_table import PaperTable
from tracer.analysis.studies.extracts import Extracts, gathered
from tracer.analysis.studies.extracts import of_trace as extracts_of
from tracer.analysis.studies.identity import Identity, identity
from tracer.analysis.studies.measures import of_trace as measures_of
from tracer.analysis.studies.papers.made import made, said_lost
from tracer.analysis.studies.papers.parts import FACTS, RUNS, Part, parts
from tracer.analysis.studies.runs import FACTORS, WORK
from tracer.analysis.studies.spread import place
from tracer.analysis.views.energy import all_of, energy
from tracer.store.trace import Trace

if TYPE_CHECKING:
    pass

_OF_RUNS = ("later_epoch_s", "epoch_energy_j")
"""The measures that the tables of runs use."""


@dataclass(frozen=True)
class Looked:
    """The data that the papers' tables need from one trace; the trace need not be opened again."""

    identity: Identity
    extracts: dict[str, Any]
    measures: dict[str, Any]


def sections(
    traces: Trace | Sequence[Trace], paper: str | None = None, baseload: Trace | None = None
) -> list[PaperTable]:
    """Returns the tables and figures that apply to these traces.

    `paper`: only that paper, by its key (000, 001, 002). `baseload`: a recording of the idle
    machine, to split energy. Raises BadTrace if a table is damaged, UsageError for a baseload with
    a target.
    """
    listed = [traces] if isinstance(traces, Trace) else list(traces)
    return of_looked([look(trace) for trace in listed], paper, _watts(baseload))


def sections_of(
    folders: Sequence[Path], paper: str | None = None, opener: Callable[[Path], Trace] = Trace
) -> list[PaperTable]:
    """Returns the same as `sections`, but opens the traces of the folders one after the other."""
    found = []
    for folder in folders:
        with opener(folder) as trace:
            found.append(look(trace))
    return of_looked(found, paper)


def look(trace: Trace) -> Looked:
    """Returns the data that the papers' tables need from this trace. This is the slow part."""
    who = identity(trace)
    return Looked(who, extracts_of(trace, who.dev), dict(measures_of(trace, who.dev, _OF_RUNS)))


def _watts(baseload: Trace | None) -> Callable[[], float | None]:
    def found() -> float | None:
        if baseload is None:
            return None
        row = all_of(energy(baseload, baseload))  # refuses one with a target
        return None if row is None else float(row["mean_w"])

    return found


def of_looked(
    looked: Sequence[Looked],
    paper: str | None = None,
    baseload: Callable[[], float | None] = lambda: None,
) -> list[PaperTable]:
    """Returns the sections of traces from the results of `look`."""
    if not looked:
        return []
    factors = _factors([one.identity for one in looked])
    plain = [
        {
            **{name: row[name] for name in row if name in ("id", *FACTORS)},
            WORK: _steps(one.extracts),
        }
        for row, one in zip(factors, looked, strict=True)
    ]
    extracts = gathered(
        ((row, one.extracts) for row, one in zip(plain, looked, strict=True)), baseload
    )
    runs = pd.DataFrame([{**row, **one.measures} for row, one in zip(factors, looked, strict=True)])
    found = (_section(part, runs, extracts) for part in parts(paper))
    return [one for one in found if one is not None]


def _steps(extracts: dict[str, Any]) -> int | None:
    """Returns the steps of a trace's training, or else of its inference; None: it tells none."""
    told = extracts["tables"]["step_times"]
    if "why" in told:
        return None
    frame = pd.DataFrame(told["rows"], columns=told["columns"])
    steps = frame[frame["part"] == "end to end"].set_index("stage")["steps"]
    return next((int(steps[stage]) for stage in ("train", "inference") if stage in steps), None)


def _factors(identities: Sequence[Identity]) -> list[dict[str, Any]]:
    """Returns factors with distinct ids, and repeats paired by their seeds, or else by order."""
    ids: Counter[str] = Counter()
    kinds: Counter[tuple[Any, ...]] = Counter()
    rows = []
    for one in identities:
        ids[one.id] += 1
        again = f" ({ids[one.id]})" if ids[one.id] > 1 else ""
        rows.append({"id": f"{one.id}{again}", **one.factors})
    keys = [tuple(str(row.get(name)) for name in ("model", "where", "mode")) for row in rows]
    seeds = [row.get("repeat") for row in rows]
    told = None not in seeds and len({*zip(keys, map(str, seeds), strict=True)}) == len(rows)
    codes = {seed: number for number, seed in enumerate(dict.fromkeys(map(str, seeds)))}
    for row, key, seed in zip(rows, keys, seeds, strict=True):
        row["repeat"] = codes[str(seed)] if told else kinds[key]
        kinds[key] += 1
    return rows


def _section(part: Part, runs: pd.DataFrame, extracts: Extracts) -> PaperTable | None:
    whole = {RUNS: runs, FACTS: extracts.facts}
    frame = whole[part.needs] if part.needs in whole else extracts.frames.get(part.needs)
    if frame is None or not len(frame):
        return None
    where = ""
    if part.one_place:
        places = list(dict.fromkeys(frame["where"].astype(str)))
        where = part.one_place if part.one_place in places else places[0]
    found = made(part, frame, where, ours_alone=True)
    if found.why:
        return None
    about = part.said(frame)
    if where and where != part.one_place:
        about = f"{about} Here: {place(where)}.".strip()
    used = frame[frame["where"].isin([where])] if where and part.needs != FACTS else frame
    table = found.table.dropna(axis="columns", how="all")
    lost = said_lost(extracts.facts, set(used["id"]))
    return PaperTable(part.title, about, table, found.figures, part.shown, lost)
