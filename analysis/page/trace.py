"""The page of a trace: summary, findings, timeline and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures import heat as draw_heat
from tracer.analysis.figures import timeline as draw
from tracer.analysis.figures.blame import blame
from tracer.analysis.findings.finding import Finding
from tracer.analysis.page.base import TEMPLATES, render
from tracer.analysis.page.paper_table import PaperTable
from tracer.analysis.page.summary import summary
from tracer.analysis.page.tables import PageTable, page_table, page_tables
from tracer.analysis.timeline.heat import table_of
from tracer.analysis.timeline.lane import Kind, Lane
from tracer.analysis.timeline.lanes import Timeline, timeline
from tracer.analysis.views.reading.reads import reads
from tracer.analysis.views.threads import of_everybody
from tracer.store.names import escaped
from tracer.store.trace import Trace

_TEMPLATE = "trace.html.j2"
_MOST_FINDINGS = 100
_SHOWN_FINDINGS = 8
"""Number of findings that are shown at first; the rest can be unfolded."""
_MOST_QUERY = 200_000
"""Most characters of a query on the page. A longer one is left out, never cut."""
_MOST_CAUSES = 4
_DRAW: dict[Kind, Callable[[pd.DataFrame, str, float, pd.DataFrame], go.Figure]] = {
    Kind.AREAS: draw.areas,
    Kind.LINES: draw.lines,
    Kind.LATENCIES: draw.latencies,
    Kind.SPANS: draw.spans,
    Kind.PLACES: draw_heat.places,
    Kind.FILES: draw_heat.files,
}


@dataclass(frozen=True)
class DrawnLane:
    """A lane with its figure, and the table below it."""

    id: str
    lane: Lane
    figure: go.Figure
    table: PageTable | None


def trace_page(
    trace: Trace,
    tables: dict[str, pd.DataFrame],
    notes: list[str],
    findings: Sequence[Finding] | None = None,
    papers: Sequence[PaperTable] = (),
    progress: Callable[[str], None] = lambda what: None,
) -> str:
    """Returns the self-contained HTML of a trace's page.

    `tables`: those of the report. `notes`: further notes on the trace. `findings`: None leaves out
    their section. `progress`: called with the name of the next stage.
    """
    shown = timeline(trace, progress)
    progress("page")
    return render(
        _TEMPLATE,
        TEMPLATES,
        figures=bool(shown.lanes) or any(one.figures for one in papers) or "waits" in tables,
        name=escaped(trace.folder.name),
        summary=summary(
            trace.manifest,
            [*notes, *_without_names(trace), *_left_out(shown)],
            losses="loss" in trace.tables,
        ),
        findings=None if findings is None else [_said(one) for one in findings[:_MOST_FINDINGS]],
        shown_findings=_SHOWN_FINDINGS,
        more_findings=max(0, len(findings or ()) - _MOST_FINDINGS),
        groups=_groups(shown),
        timeline=shown,
        tables=page_tables(tables),
        drawn={} if "waits" not in tables else {"waits": blame(tables["waits"])},
        papers=[
            (one, page_table(f"paper-{number}", one.frame, one.title))
            for number, one in enumerate(papers, 1)
        ],
        queries=[
            (lane.title, *_query(lane.query, "not shown")) for lane in shown.lanes if lane.query
        ],
    )


def draw_lane(lane: Lane, end_s: float, lost: pd.DataFrame) -> go.Figure:
    """Draws a lane. `lost` is the frame of intervals in which events were lost."""
    return _DRAW[lane.kind](lane.frame, lane.unit, end_s, lost)


def _groups(shown: Timeline) -> list[tuple[str, list[DrawnLane]]]:
    """Returns the drawn lanes by group, in order."""
    groups: dict[str, list[DrawnLane]] = {}
    for number, lane in enumerate(shown.lanes, 1):
        figure = draw_lane(lane, shown.axis.length_s, shown.losses)
        table = None
        if lane.kind is Kind.FILES:
            table = page_table(f"files-{number}", table_of(lane), "", "")
        groups.setdefault(lane.group, []).append(DrawnLane(f"lane-{number}", lane, figure, table))
    return list(groups.items())


def _without_names(trace: Trace) -> list[str]:
    """Returns a note on files whose names were not found, and how many of them targets read."""
    if "loss" not in trace.tables:
        return []
    causes = trace.rows(f"SELECT cause FROM loss WHERE stream = 'files' LIMIT {_MOST_CAUSES}")
    if not causes:
        return []
    said = "; ".join(str(cause) for (cause,) in causes)
    if {"page_cache", "processes"} <= set(trace.tables):
        mine = "true" if of_everybody(trace) else "target IS NOT NULL"
        nameless, files = trace.rows(
            "SELECT count(*) FILTER (path IS NULL), count(*) FROM (SELECT DISTINCT dev, ino, path"
            f" FROM {reads(trace)} WHERE {mine} AND ino IS NOT NULL)"
        )[0]
        said += f" ({nameless:,} of the {files:,} files that the targets read have no name)"
    return [f"Names are missing: {said}"]


def _left_out(shown: Timeline) -> list[str]:
    """Returns notes on the data that the timeline lacks, with reasons."""
    notes = [f"The timeline lacks {name}: {why}" for name, why in shown.failed.items()]
    if shown.outside:
        said = ", ".join(f"{n:,} of {name}" for name, n in shown.outside.items())
        notes.append(f"Rows outside of the recording's time are not on the timeline: {said}")
    return notes


def _said(finding: Finding) -> Any:
    """Returns a finding's fields."""
    query, too_long = _query(finding.query, "see tracer report --json")
    fields = {field: getattr(finding, field) for field in _FIELDS}
    return {**fields, "query": query, "too_long": too_long}


def _query(query: str, otherwise: str) -> tuple[str, str]:
    """Returns a query on one line and "", or "" and a note if the query is too long for a page."""
    line = " ".join(query.split())
    if len(line) <= _MOST_QUERY:
        return line, ""
    return "", f"The query is too long for this page ({len(line):,} characters): {otherwise}."


_FIELDS = ("topic", "sentence", "value", "unit", "weight", "lossy", "certainty")
