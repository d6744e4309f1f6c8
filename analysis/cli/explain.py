"""`tracer explain`."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.analysis.cli.many import opened_here
from tracer.analysis.cli.page_output import Force, Html, check_output, write_page
from tracer.cli.main import verb
from tracer.cli.opening import AsJson

if TYPE_CHECKING:
    from tracer.analysis.explain.explanation import Explanation

_STEP = re.compile(r"^([0-9]{1,15}):([0-9]{1,15})$")
_IN_JSON, _ON_PAGE = 20, 1000
"""Longest segments of a slow step that are listed."""


def _groups() -> dict[str, str]:
    from tracer.analysis.explain.explanation import GROUPS

    return {"GROUPS": ", ".join(GROUPS)}


@verb(lists=_groups)
def explain(
    trace: Annotated[
        str, typer.Argument(metavar="T", help="Trace, pack or URL.", show_default=False)
    ],
    step: Annotated[
        str | None,
        typer.Option(
            "--step",
            metavar="EPOCH:STEP",
            help="Explain this step instead of the slowest. Steps are numbered through all epochs.",
        ),
    ] = None,
    slowest: Annotated[
        int,
        typer.Option("--slowest", metavar="N", min=0, max=1000, help="Slowest steps to explain."),
    ] = 3,
    by: Annotated[
        str,
        typer.Option("--by", metavar="WHAT", help="Group by one of {GROUPS}."),
    ] = "kind",
    html: Html = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Explain why training steps took their time: what each one waited for, and for whom.

    A step's time is split along its critical path: while its thread waits for
    another thread of the job, such as a DataLoader worker, the path goes on in
    that thread. The parts of a step add up to its time. A slow step is compared
    with typical ones: the parts that took longer are listed first.

    The trace needs the scheduler's events: tracer record -e default,sched.
    Recorded with --stacks, it also tells the lines of Python code (--by line),
    and functions of the kernel. With --json, each number has its query, for
    tracer query.

    [bold]Examples[/bold]

      sudo tracer record -e default,sched -o run.trace -- python train.py

      tracer explain run.trace

      tracer explain run.trace --slowest 10 --by thread

      tracer explain run.trace --by line

      tracer explain run.trace --step 1:812

      tracer explain run.trace --html why.html

      tracer explain run.trace --json | jq -r '.slowest[0].parts[0].query'
    """
    from tracer.analysis.explain.explanation import GROUPS
    from tracer.analysis.explain.explanation import explain as explained
    from tracer.analysis.explain.text import print_explanation
    from tracer.analysis.scale.sources import find_traces
    from tracer.probes.errors import UsageError

    if by not in GROUPS:
        raise UsageError(f"--by does not take {by!r}", f"give one of {', '.join(GROUPS)}")
    wanted = None
    if step is not None:
        match = _STEP.match(step)
        if match is None:
            raise UsageError(
                f"--step does not take {step!r}",
                "give an epoch and a step, as in 0:12, also if steps have no epoch",
            )
        wanted = (int(match[1]), int(match[2]))
    sources = find_traces([trace])
    if len(sources) > 1:
        raise UsageError(f"{trace} holds {len(sources)} traces", "name one of them")
    if html is not None:
        check_output(html, force, json)
    most = _ON_PAGE if html is not None else _IN_JSON
    with opened_here(sources[0]) as opened:
        found = explained(opened, by, slowest, wanted, most)
        if html is not None:
            from tracer.analysis.explain.over_time import over_time
            from tracer.analysis.explain.waiting import waiting_boxes
            from tracer.analysis.page.explanation import explanation_page

            waiting = waiting_boxes(opened)
            page = explanation_page(sources[0].location, found, over_time(opened), waiting)
            write_page(page, html)
    if json:
        from tracer.store.trace import dump

        typer.echo(dump({"trace": sources[0].location, **_as_json(found)}))
    elif html is None:
        print_explanation(sources[0].location, found)


def _as_json(found: Explanation) -> dict[str, Any]:
    told = asdict(found)
    for one in told["slowest"]:
        number = one.pop("epoch_pass")
        if number is not None:
            one["pass"] = number
    for part in (*told["parts"], *(part for one in told["slowest"] for part in one["parts"])):
        part |= part.pop("group")
    return told
