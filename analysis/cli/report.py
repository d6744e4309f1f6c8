"""`tracer report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.analysis.cli.many import Locations, Scheduler, opened_here, shown_reading
from tracer.analysis.cli.page_output import Force, Html, check_output, write_page
from tracer.cli.opening import AsJson

if TYPE_CHECKING:
    import pandas as pd

    from tracer.analysis.report.gathered import Gathered
    from tracer.analysis.report.together import Together
    from tracer.analysis.scale.sources import Source
    from tracer.store.trace import Trace

_SHOWN = 10
"""Findings that are printed without --findings."""


def report(
    traces: Locations,
    baseload: Annotated[
        str | None,
        typer.Option(
            "--baseload", metavar="T", help="Trace of the idle machine, to split energy with."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="WHAT", help="Add a table grouped by phase, epoch or step."),
    ] = None,
    html: Html = None,
    force: Force = False,
    findings: Annotated[
        int | None,
        typer.Option(
            "--findings",
            metavar="N",
            min=0,
            help="Number of findings; default: 10, or all with --json.",
        ),
    ] = None,
    scheduler: Scheduler = None,
    json: AsJson = False,
) -> None:
    """Show what the kernel did: findings, calls, faults, write-backs, requests, losses.

    Findings come first, the most important one at the top. Each finding states a
    number; --json also gives the SQL query of that number, for tracer query.

    The report also covers samples and energy. --baseload subtracts the energy
    that the idle machine uses (recorded with tracer record --baseload) from that
    of the run.

    --html writes the report as one page, with a timeline that zooms, heat maps of
    write-backs and reads, and tables that sort. The page needs nothing but a
    browser.

    With several traces, counts, times and quantiles are over all traces. Tables
    that cannot be added up have one row per trace, named in the first column.

    [bold]Examples[/bold]

      tracer report run.trace

      tracer report run.trace --baseload idle.trace

      tracer report run.trace --by phase

      tracer report run.trace --html run.html

      tracer report run.trace --json | jq .tables.writeback_reasons

      tracer report run.trace --json | jq -r '.findings[0].query'

      tracer report quick.study/runs --scheduler local:4

      tracer report s3://bucket/runs --scheduler tcp://10.0.0.1:8786
    """
    from tracer.analysis.report.by_phase import keys_of
    from tracer.analysis.report.gathered import gather
    from tracer.analysis.report.text import print_report
    from tracer.analysis.report.text_together import print_together
    from tracer.analysis.report.together import together
    from tracer.analysis.scale.mapping import results
    from tracer.analysis.scale.sources import find_traces
    from tracer.probes.errors import BadTrace, UsageError

    if html is not None:
        check_output(html, force, json)
    sources = find_traces(traces)
    if html is not None and (len(sources) > 1 or scheduler is not None):
        raise UsageError(
            "--html makes a page of one trace, on this machine",
            "name one trace, without --scheduler",
        )
    if by is not None:
        keys_of(by)
    look = partial(
        gather, by=by, findings=findings, baseload=_idle(baseload), alone=len(sources) == 1
    )
    if len(sources) > 1:
        with shown_reading() as done:
            each = results(look, sources, scheduler, done)
            names = (source.name for source in sources)
            every = together(zip(names, each, strict=True))
        if by is not None and "by_phase" not in every.tables:
            raise BadTrace(
                "no trace has the table phases",
                "see what it is made from: tracer query --columns phases",
            )
        chosen = every.findings[:findings]
        if json:
            told = [{"trace": name, **asdict(found)} for name, found in chosen]
            _print_json(_of_many(every, sources), told, every.tables)
        else:
            shown = chosen[:_SHOWN] if findings is None else chosen
            print_together(every, shown, len(chosen) - len(shown))
        return
    if scheduler is not None:
        (one,) = results(look, sources, scheduler)
        tables = one.every_table()
    else:
        with opened_here(sources[0]) as opened:
            one = look(opened)
            tables = one.every_table()
            if html is not None:
                write_page(_page(opened, one, tables), html)
    if json:
        told = [asdict(found) for found in one.findings]
        _print_json(_of_one(one, sources[0].location), told, tables)
    elif html is None:
        listed = one.findings[:_SHOWN] if findings is None else one.findings
        left_out = len(one.findings) - len(listed)
        print_report(sources[0].location, one.facts, tables, one.notes, listed, left_out)


def _page(trace: Trace, one: Gathered, tables: dict[str, pd.DataFrame]) -> str:
    from tracer.analysis.page.trace import trace_page
    from tracer.analysis.studies.papers.of_traces import sections
    from tracer.cli.progress import status

    with status("making the page") as progress:
        progress("papers")
        papers = sections(trace)
        return trace_page(trace, tables, one.notes, one.findings, papers, progress)


def _idle(location: str | None) -> Source | None:
    from tracer.analysis.scale.sources import find_traces
    from tracer.probes.errors import UsageError

    if location is None:
        return None
    found = find_traces([location])
    if len(found) > 1:
        raise UsageError(f"{location} holds {len(found)} traces", "name one trace as --baseload")
    return found[0].absolute()


def _of_one(one: Gathered, location: str) -> dict[str, Any]:
    """Returns the JSON keys of one trace that precede the findings and tables."""
    order = ("complete", "duration_s", "targets", "loss", "without_events", "own_cost", "vm")
    facts = {name: one.facts[name] for name in order}
    return {"trace": location, **facts, "notes": one.notes}


def _of_many(every: Together, sources: Sequence[Source]) -> dict[str, Any]:
    """Returns the JSON keys of many traces that precede the findings and tables."""
    places = {source.name: source.location for source in sources}
    told = [{"trace": n, "location": places[n], **facts} for n, facts in every.traces.items()]
    return {"traces": told, "notes": every.notes, "of": every.of}


def _print_json(
    head: dict[str, Any], findings: list[dict[str, Any]], tables: dict[str, pd.DataFrame]
) -> None:
    from tracer.analysis.report.tables import records
    from tracer.store.trace import dump

    rows = {name: records(frame) for name, frame in tables.items()}
    typer.echo(dump({**head, "findings": findings, "tables": rows}))
