"""The page of an explanation: what the time of steps depended on, and the slowest steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.explain.explanation import Explanation, Part, SlowStep
from tracer.analysis.explain.waiting import Waiting
from tracer.analysis.explain.words import (
    ALONE,
    LOST,
    duration,
    lost,
    meanwhile,
    step_called,
    steps_name,
    what,
    where,
)
from tracer.analysis.figures import critical_path as draw
from tracer.analysis.figures.flame import flame
from tracer.analysis.findings.finding import name, percent
from tracer.analysis.page.base import TEMPLATES, render
from tracer.analysis.page.summary import Tile
from tracer.analysis.page.tables import PageTable, page_table

_TEMPLATE = "explanation.html.j2"
_MOST_PARTS = 25


@dataclass(frozen=True)
class Section:
    """A figure and a table under a title; `about`: sentences on them."""

    id: str
    title: str
    about: str
    figure: go.Figure | None
    table: PageTable | None


def explanation_page(title: str, found: Explanation, times: pd.DataFrame, waiting: Waiting) -> str:
    """Returns the self-contained page.

    `times`: as `tracer.analysis.explain.over_time` returns. `waiting`: as `waiting_boxes` of
    `tracer.analysis.explain.waiting` returns.
    """
    sections = [
        Section(
            "all",
            "What the time of all steps depended on",
            "Each bar is a step, or the mean of neighbouring steps.",
            draw.step_times(times) if len(times) else None,
            _table(found.parts, found, with_typical=False),
        ),
        *([_waiting(waiting)] if len(waiting.boxes) else []),
        *(_of_step(number, step, found) for number, step in enumerate(found.slowest)),
    ]
    return render(
        _TEMPLATE,
        TEMPLATES,
        figures=True,
        name=title,
        tiles=_tiles(found),
        lost=lost(found) if found.lossy else None,
        sections=sections,
        findings=[one.sentence[:1].upper() + one.sentence[1:] for one in found.findings],
    )


def _tiles(found: Explanation) -> list[Tile]:
    whose = f" of {found.processes} processes" if found.processes > 1 else ""
    return [
        Tile("steps", f"{found.steps:,}", steps_name(found.stage, found.steps) + whose),
        Tile("median", duration(found.median_ns), "time of a step"),
        Tile("95 %", duration(found.p95_ns), "of the steps are within this time"),
        Tile("longest", duration(found.longest_ns), "time of a step"),
        Tile("unknown", percent(100 * found.unknown_share), "of the time has an unknown cause"),
        Tile("inferred", percent(100 * found.inferred_share), "of the time has an inferred cause"),
    ]


def _waiting(waiting: Waiting) -> Section:
    about = (
        "A box is as wide as the time that steps waited in a function and in what it called, which "
        "stands above it. The kind of the wait is at the top. Looks at Python stacks, five a "
        "second, tell the functions; a short wait between two looks has none. Functions of the "
        "kernel end in _[k]."
    )
    if waiting.more_stacks:
        about += (
            f" {waiting.more_stacks:,} more stacks with less time"
            f" ({percent(100 * waiting.more_share)} of the waiting time) are left out:"
            " tracer export --format folded."
        )
    return Section("waiting", "Where the steps waited", about, flame(waiting.boxes), None)


def _of_step(number: int, step: SlowStep, found: Explanation) -> Section:
    called = step_called(step, found)
    more = [part for part in step.parts if part.more_ns > 0]
    about = f"{step.total_ns / found.median_ns:.1f} times the median."
    if step.lossy:
        about += f" {LOST}"
    if step.alone:
        about += f" {ALONE}"
    elif more:
        about += (
            " Most of all, it has more of this than a typical step:"
            f" {where(more[0].group, found.targets)}, {what(more[0].group)}"
            f" (+{duration(more[0].more_ns)})."
        )
    if step.more_segments:
        rest = step.total_ns - sum(one["dur_ns"] for one in step.segments)
        about += (
            f" The figure has the {len(step.segments):,} longest segments of the step's path."
            f" {step.more_segments:,} shorter ones ({duration(rest)} together) are left out."
        )
    return Section(
        f"step-{number}",
        f"{called}: {duration(step.total_ns)}",
        about,
        draw.threads_of_step(_segments(step), step.total_ns / 1e6),
        _table(step.parts, found, with_typical=True),
    )


def _segments(step: SlowStep) -> pd.DataFrame:
    rows = [
        {
            "from_ms": (one["ts"] - step.start) / 1e6,
            "ms": one["dur_ns"] / 1e6,
            "thread": f"{name(one['comm'], 'thread')} {one['tid']}",
            "kind": one["kind"],
            "said": _said(one),
        }
        for one in step.segments
    ]
    return pd.DataFrame(rows, columns=["from_ms", "ms", "thread", "kind", "said"])


def _said(segment: dict[str, Any]) -> str:
    said = f"{name(segment['phase'], 'between phases')}: {what(segment)}"
    if segment["meanwhile"]:
        said += f"; disks served {meanwhile(segment['meanwhile'])}"
    return said


def _table(parts: list[Part], found: Explanation, with_typical: bool) -> PageTable:
    rows = []
    for part in parts[:_MOST_PARTS]:
        row: dict[str, object] = {
            "where": where(part.group, found.targets),
            "what the thread does": what(part.group),
            "time_ms": part.ns / 1e6,
            "share": part.share,
        }
        if with_typical:
            row |= {
                "typical_ms": part.typical_ns / 1e6,
                "more_ms": part.more_ns / 1e6,
            }
        rows.append(row)
    table = page_table("", pd.DataFrame(rows), "")
    return replace(table, more=len(parts) - len(rows))
