"""The contents of a study's report, the same in every format."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from tracer.analysis.page.cells import rows
from tracer.analysis.report.tables import records
from tracer.analysis.studies.claims import Verdict, judge
from tracer.analysis.studies.extracts import Extracts, keep_extracts, read_extracts
from tracer.analysis.studies.facts import Budget, RunFacts, StudyFacts, read_run
from tracer.analysis.studies.papers.made import made, said_lost
from tracer.analysis.studies.papers.parts import FACTS, RUNS, Part, parts
from tracer.analysis.studies.runs import name_of, place_of, read_runs, said_runs

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Section:
    """A table of a paper with its figures.

    `why`: the reason why it is missing, or "". `lost`: the losses of its runs' traces, or ""."""

    title: str
    about: str
    columns: list[str]
    rows: list[list[str]]
    figures: list[go.Figure]
    why: str
    lost: str


@dataclass(frozen=True)
class Contents:
    """The contents of a report. `machine`: names and values.

    `said`: the number of runs, and of those that are left out. `left_out`: ids of runs, the state
    of each, and why.
    """

    name: str
    about: str
    said: str
    machine: list[tuple[str, str]]
    verdicts: list[Verdict]
    sections: list[Section]
    left_out: list[tuple[str, str, str]]
    lost: str


def contents(folder: Path, drawn: bool = True) -> Contents:
    """Returns the contents of a study's folder. Raises UsageError if it is not a study's.

    `drawn`: draw figures, which takes most of the time; markdown does not need them.
    """
    study, runs, left_out = read_runs(folder, keep_extracts)
    extracts = read_extracts(folder, runs)
    paper = study.get("paper")
    return Contents(
        name_of(study),
        study.get("about") or "",
        said_runs(study, len(runs), left_out),
        [
            *_machine(study, extracts, _versions(folder, runs), runs),
            *_others(folder, runs, extracts),
        ],
        judge(runs, paper),
        [_section(part, runs, extracts, drawn) for part in parts(paper)],
        [
            *((run["id"], run["state"], run["reason"]) for run in left_out),
            *((id, "has no tables and figures", why) for id, why in extracts.left_out),
        ],
        said_lost(extracts.facts, None),
    )


def _section(part: Part, runs: pd.DataFrame, extracts: Extracts, drawn: bool) -> Section:
    whole = {RUNS: runs, FACTS: extracts.facts}
    frame = whole[part.needs] if part.needs in whole else extracts.frames.get(part.needs)
    nothing: list[list[str]] = []
    if frame is None:
        return Section(part.title, part.about, [], nothing, [], extracts.why[part.needs], "")
    found = made(part, frame, drawn=drawn)
    if found.why:
        return Section(part.title, part.about, [], nothing, [], found.why, "")
    table = found.table
    columns, cells = rows(records(table), list(table.columns)) if part.shown else ([], nothing)
    used = frame[frame["where"].isin(part.places)] if part.places else frame
    used = used[used["mode"] == part.mode] if part.mode else used
    lost = said_lost(extracts.facts, set(used["id"]))
    return Section(part.title, part.said(frame), columns, cells, found.figures, "", lost)


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
    study: StudyFacts, extracts: Extracts, versions: dict[str, set[str]], runs: pd.DataFrame
) -> list[tuple[str, str]]:
    """Returns the command of the study, and each fact once, with several values if runs differ."""
    found = [("command", _command(study))]
    for key, name in _FACTS.items():
        if key not in extracts.facts:
            continue
        values = [value for value in extracts.facts[key].drop_duplicates() if pd.notna(value)]
        if key == "memory_bytes":
            values = [f"{value / 2**30:.1f} GiB" for value in values]
        found.append((name, "; ".join(str(value) for value in values) or "not recorded"))
    found += [(name, "; ".join(sorted(values))) for name, values in sorted(versions.items())]
    share = study.get("scale")
    if share is not None:
        found.append(("share of the paper's samples", f"{share:g}"))
    timers = study.get("time_scale")
    if timers is not None:
        found.append(("factor for the timers of flusher and journal", f"{timers:g}"))
    if "repeat" in runs and len(runs):
        found.append(("repeats", str(runs["repeat"].nunique())))
    return found


def _command(study: StudyFacts) -> str:
    """Returns the command that runs the study: its name is that of a shipped study or a file."""
    words = ["tracer", "study", "run", name_of(study)]
    numbers = {
        "--scale": study.get("scale"),
        "--time-scale": study.get("time_scale"),
        "--repeats": study.get("repeats"),
        "--seed": study.get("seed") or None,
    }
    for option, number in numbers.items():
        if number is not None:
            words += [option, str(number)]
    engine = study.get("engine")
    if engine not in (None, "", "docker"):
        words += ["--engine", str(engine)]
    return shlex.join(words)


def _others(folder: Path, runs: pd.DataFrame, extracts: Extracts) -> list[tuple[str, str]]:
    """Returns the shares of the CPUs that others used during the runs: processes, and the host."""
    cpus = extracts.facts["cpus"].max() if "cpus" in extracts.facts else float("nan")
    if pd.isna(cpus):
        return []
    budget = Budget()
    shares: dict[str, list[float]] = {"use by other processes": [], "taken by the host (steal)": []}
    for id in runs["id"]:
        facts = read_run(place_of(folder, str(id)), budget) or RunFacts()
        over = _others_over(facts)
        used = (facts.get("others_cpu_s"), facts.get("steal_s"))
        for one, seconds in zip(shares.values(), used, strict=True):
            if seconds is not None and over is not None and over > 0:
                one.append(seconds / over / cpus)
    return [
        (name, f"{_of_cpus(found)} ({len(found)} runs)") for name, found in shares.items() if found
    ]


def _of_cpus(shares: list[float]) -> str:
    return f"{sum(shares) / len(shares):.1%} of the CPUs on average, {max(shares):.1%} at most"


def _others_over(facts: RunFacts) -> float | None:
    """Returns the seconds in which others' CPU time was counted; None if that is not known.

    Runs of earlier versions tell only the time of the whole run, with the making of its disk.
    """
    over, began, ended = facts.get("others_over_s"), facts.get("began"), facts.get("ended")
    if over is None and began is not None and ended is not None:
        over = ended - began
    return over


def _versions(folder: Path, runs: pd.DataFrame) -> dict[str, set[str]]:
    """Returns the jobs' versions that the runner recorded: Python, packages, image."""
    found: dict[str, set[str]] = {}
    budget = Budget()
    for id in runs["id"]:
        facts = read_run(place_of(folder, str(id)), budget) or RunFacts()
        told = facts.get("versions")
        named = {"Python": told["python"], **told["packages"]} if told else {}
        for name, value in (*named.items(), ("image", facts.get("image"))):
            if value is not None:
                found.setdefault(name, set()).add(value)
    return found
