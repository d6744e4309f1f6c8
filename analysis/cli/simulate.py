"""`tracer simulate`."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from tracer.cli.opening import AsJson, TracePath, open_trace

_DEFAULT_SHARE = 0.25
_SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


def simulate(
    trace: TracePath,
    model: Annotated[str, typer.Option(help="Model of the layer: paper.")] = "paper",
    capacity: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Size of the layer, e.g. 64M.")
    ] = None,
    capacity_pages: Annotated[
        int | None, typer.Option(metavar="N", help="Size of the layer in pages.")
    ] = None,
    capacity_share: Annotated[
        float | None,
        typer.Option(metavar="F", help="Size as a share of the distinct pages written."),
    ] = None,
    policy: Annotated[str, typer.Option(help="Replacement policy: lru.")] = "lru",
    medium: Annotated[str, typer.Option(help="Device of the layer.")] = "pcm-paper",
    disk: Annotated[str, typer.Option(help="Device behind the layer.")] = "hdd-paper",
    dev: Annotated[
        list[str] | None,
        typer.Option(metavar="MAJOR:MINOR", help="Only write-backs to this device."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Say what a non-volatile flush layer would do for the recorded write-backs.

    [bold]Examples[/bold]

      tracer simulate run.trace --capacity 64M

      tracer simulate run.trace --capacity-share 0.5 --json
    """
    from analysis.flushlayer import devices, paper
    from analysis.flushlayer.accesses import page_writebacks
    from analysis.views.devices import notes as devices_notes
    from probes.errors import UsageError

    if model != "paper":
        raise UsageError(f"there is no model {model!r}", "known: paper")
    if policy != "lru":
        raise UsageError(f"there is no policy {policy!r}", "known: lru")
    the_medium = devices.find(medium, "nvm")
    the_disk = devices.find(disk, "disk")
    wanted = _capacity(capacity, capacity_pages, capacity_share)
    with open_trace(trace) as opened:
        accesses = page_writebacks(opened, dev)
        loss = opened.manifest["loss"]
        about_devices = devices_notes(opened.manifest, set(accesses.by_device))
    pages, how = wanted(accesses.unique)
    result = paper.simulate(accesses, pages, the_medium, the_disk)
    sweep = [
        paper.simulate(accesses, math.ceil(share * accesses.unique), the_medium, the_disk)
        for share in _SHARES
    ]
    notes = [how, *paper.assumptions(the_medium, the_disk)]
    notes += about_devices
    if loss.get("windows"):
        notes.append(f"{loss['windows']} gaps in the recording: write-backs may be missing")
    facts: dict[str, Any] = {
        "model": model,
        "policy": policy,
        "medium": the_medium.name,
        "disk": the_disk.name,
        "identity": "block",
        "requests": result.requests,
        "unique_pages": result.unique_pages,
        "disk_writes": result.disk_writes,
        "resident_pages": result.resident_pages,
        "capacity_pages": result.capacity_pages,
        "capacity_bytes": result.capacity_pages * 4096,
        "improvement": result.improvement,
        "improvement_with_drain": result.improvement_with_drain,
        "by_reason": accesses.by_reason,
        "by_device": accesses.by_device,
        "own_requests_left_out": accesses.own,
        "sweep": [
            {
                "capacity_share": share,
                "capacity_pages": r.capacity_pages,
                "disk_writes": r.disk_writes,
                "improvement": r.improvement,
                "improvement_with_drain": r.improvement_with_drain,
            }
            for share, r in zip(_SHARES, sweep, strict=True)
        ],
        "assumptions": notes,
    }
    if json:
        from tracer.store.trace import dump

        typer.echo(dump(facts))
    else:
        _print(str(trace), facts)


def _capacity(text: str | None, pages: int | None, share: float | None) -> Any:
    """What gives (pages, explanation) for a number of distinct pages."""
    from probes.errors import UsageError
    from tracer.cli.sizes import parse_size

    given = [option for option in (text, pages, share) if option is not None]
    if len(given) > 1:
        raise UsageError(
            "the capacity is given more than once",
            "give one of --capacity, --capacity-pages, --capacity-share",
        )
    if text is not None:
        size = parse_size(text)
        return lambda unique: (size // 4096, f"capacity {size} bytes, as given")
    if pages is not None:
        if not 0 <= pages < 1 << 62:
            raise UsageError(f"a capacity of {pages} pages cannot be", "give 0 or more")
        return lambda unique: (pages, f"capacity {pages} pages, as given")
    by_default = share is None
    part = _DEFAULT_SHARE if share is None else share
    if not (math.isfinite(part) and 0 <= part <= 1e6):
        raise UsageError(f"a capacity share of {part} cannot be", "give e.g. 0.25")
    said = "by default: the paper gives none" if by_default else "as given"
    return lambda unique: (
        math.ceil(part * unique),
        f"capacity {part:g} of the {unique} distinct pages, {said}",
    )


def _print(name: str, facts: dict[str, Any]) -> None:
    from tracer.cli.output import console, print_table, safe, show
    from tracer.cli.sizes import show_size

    out = console()
    out.print(safe(f"{name}: a flush layer of {facts['medium']} before {facts['disk']}"))
    out.print()
    if not facts["requests"]:
        out.print("No page write-backs in this trace: a flush layer would have had nothing to do.")
    else:
        out.print(f"  N  page write-backs            {show(facts['requests'])}")
        out.print(f"  U  distinct pages              {show(facts['unique_pages'])}")
        out.print(
            f"     capacity                    {show(facts['capacity_pages'])} pages"
            f" ({show_size(facts['capacity_bytes'])})"
        )
        out.print(f"  D  pages that reach the disk   {show(facts['disk_writes'])}")
        out.print(f"     improvement                 {show(facts['improvement'])}")
        out.print(f"     with the final drain        {show(facts['improvement_with_drain'])}")
        out.print()
        columns = {
            "capacity_share": "share of U",
            "capacity_pages": "pages",
            "disk_writes": "D",
            "improvement": "improvement",
            "improvement_with_drain": "with drain",
        }
        print_table(
            out,
            "Other capacities",
            list(columns.values()),
            [[s[c] for c in columns] for s in facts["sweep"]],
        )
        for reason, pages in facts["by_reason"].items():
            out.print(safe(f"  {show(pages)} pages by {reason}"))
    out.print("\nAssumptions")
    for note in facts["assumptions"]:
        out.print(safe(f"  - {note}"))
