"""`tracer simulate`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tracer.analysis.cli.many import Locations, Scheduler, opened_here
from tracer.analysis.cli.page_output import Force, Html, check_output, write_page
from tracer.analysis.cli.simulate_options import Model, refuse_set_by_file, refuse_unused
from tracer.analysis.cli.simulate_sweep import simulate_sweep
from tracer.cli.main import named_path, one_of, verb
from tracer.cli.opening import AsJson

if TYPE_CHECKING:
    from tracer.analysis.flushlayer.answers.question import Question
    from tracer.store.trace import Trace

Choice = TypeVar("Choice", bound=StrEnum)


_MODELS = (
    "paper: sum of flat latencies; curve: all capacities at once; timed: queues, seeks, destaging."
)


_MEND = "give e.g. --capacity 64K, --capacity-pages 64 or --capacity-share 0.25"

_MODEL, _LAYER, _TAKEN = "Model", "Flush layer and disk", "Write-backs"
"""The groups of options on the help page."""


def _lists() -> dict[str, str]:
    from tracer.analysis.flushlayer import devices
    from tracer.analysis.flushlayer.policies.catalogue import POLICIES
    from tracer.analysis.flushlayer.policies.operations import BUFFERS
    from tracer.analysis.flushlayer.timed import destage
    from tracer.analysis.flushlayer.trace.accesses import Identity

    return {
        "policies": one_of(POLICIES),
        "buffers": one_of(BUFFERS),
        "identities": one_of(Identity),
        "media": one_of(devices.names("nvm")),
        "disks": one_of(devices.names("disk")),
        "destage": one_of(destage.names()),
    }


@verb(lists=_lists)
def simulate(
    context: typer.Context,
    traces: Locations,
    model: Annotated[
        str, typer.Option(metavar="NAME", help=_MODELS, rich_help_panel=_MODEL)
    ] = "paper",
    capacity: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="paper, timed: size of the layer, e.g. 64M. Default: a quarter of the distinct "
            "pages written.",
            rich_help_panel=_LAYER,
        ),
    ] = None,
    capacity_pages: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="paper, timed: size of the layer in pages of 4096 bytes.",
            rich_help_panel=_LAYER,
        ),
    ] = None,
    capacity_share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="paper, timed: size of the layer as a share of the distinct pages written, "
            "e.g. 0.25.",
            rich_help_panel=_LAYER,
        ),
    ] = None,
    wanted: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="curve: also find the capacity that this improvement (0 to 1) needs.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Replacement policy: {policies}.", rich_help_panel=_LAYER
        ),
    ] = "lru",
    buffer: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Requests that the layer takes: {buffers}.",
            rich_help_panel=_LAYER,
        ),
    ] = "write-only",
    identity: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Identify pages by {identities}.", rich_help_panel=_MODEL
        ),
    ] = "block",
    medium: Annotated[
        str,
        typer.Option(metavar="NAME", help="Device of the layer: {media}.", rich_help_panel=_LAYER),
    ] = "pcm-paper",
    disk: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Device behind the layer: {disks}.", rich_help_panel=_LAYER
        ),
    ] = "hdd-paper",
    devices: Annotated[
        Path | None,
        typer.Option(
            parser=named_path,
            metavar="FILE",
            help="Catalogue of your own devices (TOML; see docs/what-if.md).",
            rich_help_panel=_LAYER,
        ),
    ] = None,
    destage: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="timed: destage policy: {destage}.", rich_help_panel=_LAYER
        ),
    ] = "lazy",
    partitioned: Annotated[
        bool,
        typer.Option(
            "--partitioned",
            help="timed: divide the layer among tenants, in equal parts up to a page, with one "
            "part for other writes.",
            rich_help_panel=_LAYER,
        ),
    ] = False,
    dev: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MAJOR:MINOR",
            help="Simulate only write-backs to this disk, partition or file system. Can be "
            "repeated. Default: all.",
            rich_help_panel=_TAKEN,
        ),
    ] = None,
    all_writers: Annotated[
        bool,
        typer.Option(
            "--all-writers",
            help="Take the pages of all processes, not only the targets'.",
            rich_help_panel=_TAKEN,
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            parser=named_path,
            metavar="FILE",
            help="Simulate every combination that a TOML file lists.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    scheduler: Scheduler = None,
    html: Html = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Simulate a non-volatile flush layer with the recorded write-backs.

    Only the pages of the recording's targets count, with their part of the
    journal and metadata. The answer says how many pages are left out. With
    --all-writers, and in traces without targets, all pages count.

    --config lists capacities, media, disks, policies and more, for one or
    several traces: docs/what-if.md has an example. The file also sets the model
    and the layer; their options are then refused.

    [bold]Examples[/bold]

      tracer simulate run.trace --capacity 64M

      tracer simulate run.trace --model curve --identity file --wanted 0.8

      tracer simulate run.trace --model timed --disk hdd-7200 --destage idle

      tracer simulate run.trace --html what-if.html

      tracer simulate quick.study/runs --config sweep.toml --scheduler local:2
    """
    from tracer.analysis.cli.simulate_text import print_answer
    from tracer.analysis.flushlayer.timed.destage import policy_called
    from tracer.analysis.scale.sources import find_traces
    from tracer.probes.errors import UsageError

    if html is not None:
        check_output(html, force, json)
    sources = find_traces(traces)
    if config is not None:
        refuse_set_by_file(context)
        simulate_sweep(sources, config, dev, all_writers, scheduler, html, json)
        return
    if len(sources) > 1:
        raise UsageError(
            "only one trace can be simulated without --config", "name one trace, or give --config"
        )
    if scheduler is not None:
        raise UsageError("--scheduler needs --config", "leave out --scheduler, or give --config")

    chosen = _one_of(Model, model, "model")
    question = _question(
        (capacity, capacity_pages, capacity_share), policy, buffer, identity, medium, disk, devices
    )
    rule = policy_called(destage)
    _check_wanted(wanted)
    refuse_unused(context, chosen)
    with opened_here(sources[0]) as opened:
        _check_devices(opened, dev or ())
        facts = {
            "model": str(chosen),
            "policy": policy,
            "buffer": buffer,
            "medium": question.medium.name,
            "disk": question.disk.name,
            "identity": str(question.identity),
            **_answer(opened, chosen, question, dev, all_writers, wanted, rule, partitioned),
        }
        facts["assumptions"] += _about(opened, facts, once=not dev)
        if question.reads:
            from tracer.analysis.flushlayer.answers.reads import about_reads, page_cache
            from tracer.analysis.flushlayer.trace.writers import TARGETS

            facts["page_cache"] = page_cache(opened, facts["writers"]["taken"] != TARGETS, dev)
            facts["assumptions"] += about_reads(facts["page_cache"])
    if html is not None:
        from tracer.analysis.page.what_if import answer_page

        write_page(answer_page(sources[0].location, facts), html)
    if json:
        from tracer.store.trace import dump

        typer.echo(dump(facts))
    elif html is None:
        print_answer(sources[0].location, facts, dev or ())


def _question(
    capacities: tuple[str | None, int | None, float | None],
    policy: str,
    buffer: str,
    identity: str,
    medium: str,
    disk: str,
    devices: Path | None,
) -> Question:
    from tracer.analysis.flushlayer.answers.question import Capacity, Question
    from tracer.analysis.flushlayer.curves.every_capacity import PAGE_BYTES
    from tracer.analysis.flushlayer.devices import find_device
    from tracer.analysis.flushlayer.trace.accesses import Identity
    from tracer.sizes import parse_page_size

    given, pages, share = capacities
    size = None if given is None else parse_page_size(given, PAGE_BYTES, "--capacity", _MEND)
    return Question(
        find_device(medium, "nvm", devices),
        find_device(disk, "disk", devices),
        Capacity(size, pages, share),
        policy,
        buffer,
        _one_of(Identity, identity, "identity"),
    )


def _answer(
    trace: Trace,
    model: Model,
    question: Question,
    dev: list[str] | None,
    all_writers: bool,
    wanted: float | None,
    rule: Any,
    partitioned: bool,
) -> dict[str, Any]:
    from functools import partial

    from tracer.analysis.flushlayer.answers import curve, paper, timed
    from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
    from tracer.cli.progress import status

    taken = partial(page_writebacks, trace, dev, all_writers=all_writers)
    if model is Model.TIMED:
        accesses = taken(question.identity, reads=True, flushes_too=True)
        with status("simulating") as progress:
            return timed.answer(question, trace, accesses, rule, partitioned, progress)
    if model is Model.CURVE:
        accesses = taken(question.identity, reads=question.reads)
        return curve.answer(question, accesses, wanted)
    return paper.answer(question, {key: taken(key, reads=question.reads) for key in Identity})


def _check_devices(trace: Trace, names: Sequence[str]) -> None:
    """Raises UsageError for a name that is neither MAJOR:MINOR nor one of a file system."""
    from tracer.probes.errors import UsageError
    from tracer.store.devices import Devices

    known = Devices(trace.manifest)
    for name in names:
        if not re.fullmatch(r"[0-9]+:[0-9]+", name) and not known.describes(name):
            found = trace.manifest.get("disks", [])
            disks = [f"{disk['dev']} ({disk.get('name')})" for disk in found if "dev" in disk]
            raise UsageError(
                f"--dev needs the number of a device, and {name!r} is none",
                f"give {one_of(disks or ['MAJOR:MINOR'])}",
            )


def _about(trace: Trace, facts: dict[str, Any], once: bool) -> list[str]:
    from tracer.analysis.flushlayer.answers.question import about_gaps
    from tracer.analysis.views.disks.devices import notes

    return [*notes(trace.manifest, set(facts["by_device"]), once), *about_gaps(trace)]


def _one_of(kind: type[Choice], value: str, what: str) -> Choice:
    from tracer.probes.errors import UsageError

    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"there is no {what} {value!r}", f"known: {', '.join(kind)}") from None


def _check_wanted(wanted: float | None) -> None:
    from tracer.probes.errors import UsageError

    if wanted is not None and not 0 <= wanted <= 1:
        raise UsageError(f"an improvement of {wanted} is impossible", "give 0 to 1, e.g. 0.8")
