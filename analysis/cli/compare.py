"""`tracer compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.analysis.cli.many import Scheduler, shown_reading
from tracer.analysis.cli.page_output import Force, Html, check_output, write_page
from tracer.cli.opening import AsJson

if TYPE_CHECKING:
    from tracer.analysis.compare.comparison import Comparison, Run


def compare(
    traces: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="T", help="Traces, packs, folders of traces, URLs.", show_default=False
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="NAME=T,T",
            help="Define a group of traces. Can be repeated; the first group is the base.",
        ),
    ] = None,
    pair: Annotated[
        bool,
        typer.Option(
            "--pair",
            help="Pair the runs of two groups by their order, if they do not pair by their work.",
        ),
    ] = False,
    top: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of changes to show of each verdict.")
    ] = 20,
    scheduler: Scheduler = None,
    html: Html = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Compare traces, such as host, one container and four containers; largest changes first.

    Traces that ran in the same place (host, one container, n containers) are
    repeats of each other. If all ran in one place, those whose names differ only
    in a number at the end are; if all names are equal, each trace is a group.
    --group replaces these rules.
    Ratios are to the first group, with 95 % intervals over the repeats, or over
    pairs of runs if runs are paired. A difference that chance can explain is
    reported as inside the noise.

    --html writes one page with every table, sortable, and a drawing of the ratios
    and their intervals. The page needs nothing but a browser.

    [bold]Examples[/bold]

      tracer compare host.trace container.trace

      tracer compare quick.study/runs/lenet-train-*/run.trace

      tracer compare --group host=h1.trace,h2.trace --group box=b1.trace,b2.trace

      tracer compare --group before=old/ --group after=new/ --scheduler local:4

      tracer compare host.trace container.trace --html compared.html
    """
    from tracer.analysis.compare.comparison import compare as compare_traces
    from tracer.probes.errors import UsageError

    if traces and group:
        raise UsageError(
            "some traces are in a --group and some are not", "put each trace into a --group"
        )
    if html is not None:
        check_output(html, force, json)
    groups = _groups(group) if group else None
    with shown_reading() as done:
        found = compare_traces(traces or [], groups, pair, scheduler, done)
    if html is not None:
        from tracer.analysis.page.comparison import comparison_page

        write_page(comparison_page(found), html)
    if json:
        from tracer.store.trace import dump

        typer.echo(dump(_as_json(found)))
    if json or html is not None:
        return
    from tracer.analysis.compare.text import print_comparison

    print_comparison(found, top)


def _groups(texts: list[str]) -> dict[str, list[str]]:
    from tracer.probes.errors import UsageError
    from tracer.store.names import escaped

    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, paths = text.partition("=")
        listed = [path for path in paths.split(",") if path]
        if not (name and equals and listed):
            raise UsageError(f"{text!r} is not a group", "give e.g. --group host=a.trace,b.trace")
        if name in found:
            raise UsageError(
                f"the group {name} is given twice", "list all its traces in one --group"
            )
        found[escaped(name)] = listed
    return found


def _lost(run: Run) -> str | None:
    return "not known" if run.lost is None else run.lost or None


def _as_json(found: Comparison) -> dict[str, Any]:
    from tracer.analysis.report.tables import records

    return {
        "groups": [
            {
                "name": group.name,
                "traces": [
                    {
                        "path": found.runs[number].path,
                        "lost": _lost(found.runs[number]),
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
        "left_out": found.left_out,
        "rows": records(found.rows),
    }
