"""What the report of a study says, whatever it is written in."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.page.cells import rows
from analysis.report.tables import records
from analysis.studies.claims import Verdict, judge
from analysis.studies.extracts import Extracts, read_extracts
from analysis.studies.papers.made import made, said_lost
from analysis.studies.papers.parts import FACTS, RUNS, Part, parts
from analysis.studies.runs import read_facts, read_runs

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Section:
    """A table of a paper with its figures; `why` it is not there, else "". `lost`: what the traces
    of its runs lost, else ""."""

    title: str
    about: str
    columns: list[str]
    rows: list[list[str]]
    figures: list[go.Figure]
    why: str
    lost: str


@dataclass(frozen=True)
class Contents:
    """All that a report says. `machine`: names and values. `failed`: ids and reasons."""

    name: str
    about: str
    runs: int
    machine: list[tuple[str, str]]
    verdicts: list[Verdict]
    sections: list[Section]
    failed: list[tuple[str, str]]
    lost: str


def contents(folder: Path) -> Contents:
    """Read a study's folder. Raises UsageError where it is none."""
    study, runs, failed = read_runs(folder)
    extracts = read_extracts(folder, runs)
    paper = study.get("paper")
    return Contents(
        str(study.get("name")),
        str(study.get("about") or ""),
        len(runs),
        _machine(study, extracts, _versions(folder, runs), runs),
        judge(runs, paper),
        [_section(part, runs, extracts) for part in parts(paper)],
        [(str(run["id"]), str(run["reason"])) for run in failed],
        said_lost(extracts.facts, None),
    )


def _section(part: Part, runs: pd.DataFrame, extracts: Extracts) -> Section:
    whole = {RUNS: runs, FACTS: extracts.facts}
    frame = whole[part.needs] if part.needs in whole else extracts.frames.get(part.needs)
    nothing: list[list[str]] = []
    if frame is None:
        return Section(part.title, part.about, [], nothing, [], extracts.why[part.needs], "")
    found = made(part, frame)
    if found.why:
        return Section(part.title, part.about, [], nothing, [], found.why, "")
    table = found.table
    columns, cells = rows(records(table), list(table.columns)) if part.shown else ([], nothing)
    used = frame[frame["where"].isin(part.places)] if part.places else frame
    lost = said_lost(extracts.facts, set(used["id"]))
    return Section(part.title, part.about, columns, cells, found.figures, "", lost)


_FACTS = {
    "kernel": "kernel",
    "machine": "architecture",
    "cpu": "CPU",
    "cpus": "CPUs",
    "memory_bytes": "memory",
    "disk": "disk of the runs",
    "vm": "write-back settings",
    "tool": "tracer",
    "backend": "backend",
}


def _machine(
    study: dict[str, Any], extracts: Extracts, versions: dict[str, set[str]], runs: pd.DataFrame
) -> list[tuple[str, str]]:
    """Each fact once; several values where runs differ in it."""
    found = []
    for key, name in _FACTS.items():
        if key not in extracts.facts:
            continue
        values = [value for value in extracts.facts[key].drop_duplicates() if pd.notna(value)]
        if key == "memory_bytes":
            values = [f"{value / 2**30:.1f} GiB" for value in values]
        found.append((name, "; ".join(str(value) for value in values) or "not recorded"))
    found += [(name, "; ".join(sorted(values))) for name, values in sorted(versions.items())]
    share = study.get("scale")
    if isinstance(share, int | float):
        found.append(("share of the paper's samples and epochs", f"{share:g}"))
    if "repeat" in runs and len(runs):
        found.append(("repeats", str(runs["repeat"].nunique())))
    return found


def _versions(folder: Path, runs: pd.DataFrame) -> dict[str, set[str]]:
    """What the jobs ran with, as the runner asked them: Python, packages, image."""
    found: dict[str, set[str]] = {}
    for id in runs["id"]:
        facts = read_facts(folder / "runs" / str(id)) or {}
        match facts.get("versions"):
            case {"python": str(python), "packages": dict(packages)}:
                named = {"Python": python, **packages}
            case _:
                named = {}
        image = facts.get("image")
        for name, value in itertools.chain(named.items(), [("image", image)]):
            if isinstance(value, str):
                found.setdefault(str(name), set()).add(value)
    return found
