"""`tracer compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli.many import Scheduler, shown_reading
from tracer.cli.opening import AsJson

if TYPE_CHECKING:
    from analysis.compare.comparison import Comparison


def compare(
    traces: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="T", help="Traces, packs, folders that hold some, URLs.", show_default=False
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME=T,T", help="A group and its traces; base first."),
    ] = None,
    pair: Annotated[
        bool, typer.Option("--pair", help="Runs pair by their order in the groups.")
    ] = False,
    top: Annotated[int, typer.Option(min=0, help="Changes to show.")] = 20,
    scheduler: Scheduler = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page that opens offline; -: stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    json: AsJson = False,
) -> None:
    """Hold traces side by side: host, one container, four containers; what changed most first.

    Traces are repeats of each other where they ran in the same place, as they
    tell; else by their names; or as --group says. Ratios are to the first
    group, with 95 % intervals over the repeats, over pairs of runs where they
    pair. A difference that chance explains is said to be inside the noise.

    --html writes all of it as one page, with the ratios and their intervals
    drawn, and tables that sort. It needs nothing but a browser.

    [bold]Examples[/bold]

      tracer compare host.trace container.trace

      tracer compare quick.study/runs/lenet-train-*/run.trace

      tracer compare --group host=h1.trace,h2.trace --group limited=c1.trace,c2.trace

      tracer compare --group before=old/ --group after=new/ --scheduler local:4
      tracer compare host.trace container.trace --html compared.html
    """
    from analysis.cli.page_output import check_output, write_page
    from analysis.compare.comparison import compare as compare_traces
    from probes.errors import UsageError

    if traces and group:
        raise UsageError("traces are named with --group and without", "put each into a --group")
    if html is not None:
        check_output(html, force, json)
    groups = _groups(group) if group else None
    with shown_reading() as done:
        found = compare_traces(traces or [], groups, pair, scheduler, done)
    if html is not None:
        from analysis.page.comparison import comparison_page

        write_page(comparison_page(found), html)
    if json:
        from tracer.store.trace import dump

        typer.echo(dump(_as_json(found)))
    if json or html is not None:
        return
    from analysis.compare.text import print_comparison

    print_comparison(found, top)


def _groups(texts: list[str]) -> dict[str, list[str]]:
    from probes.errors import UsageError
    from tracer.store.names import escaped

    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, paths = text.partition("=")
        listed = [path for path in paths.split(",") if path]
        if not (name and equals and listed):
            raise UsageError(f"{text!r} is no group", "give e.g. --group host=a.trace,b.trace")
        if name in found:
            raise UsageError(f"the group {name} is given twice", "name all of its traces at once")
        found[escaped(name)] = listed
    return found


def _as_json(found: Comparison) -> dict[str, Any]:
    from analysis.report.tables import records

    return {
        "groups": [
            {
                "name": group.name,
                "traces": [
                    {
                        "path": found.runs[number].path,
                        "lost": found.runs[number].lost or None,
                        **{
                            name: found.runs[number].identity.factors.get(name)
                            for name in ("model", "where", "mode", "repeat")
                        },
                    }
                    for number in group.traces
                ],
            }
            for group in found.grouping.groups
        ],
        "grouped": found.grouping.how,
        "tests": found.tests,
        "notes": found.notes,
        "rows": records(found.rows),
    }
