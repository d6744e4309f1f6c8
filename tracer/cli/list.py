"""`tracer list`."""

from __future__ import annotations

import os
import textwrap
from typing import Any

import typer

from tracer.cli.opening import AsJson
from tracer.probes.catalogue import PROBES
from tracer.probes.samples import TABLE as SAMPLES
from tracer.probes.schema import Event, Probe, Table

_SAMPLED = "Values read periodically, of each target and of the machine (docs/samples.md)."


def list_probes(json: AsJson = False) -> None:
    """Show the probes: their events, whether this kernel has them, and their rates.

    Then show the sampled series. --json adds the columns of each table.

    [bold]Example[/bold]

      tracer list --json | jq .block.columns
    """
    from tracer.probes.backends.perf_events.attributes import perf_events
    from tracer.probes.kernel import find_tracefs
    from tracer.probes.schema import Feed

    tracefs = find_tracefs()

    perf = perf_events()

    def there(event: Event) -> bool | None:
        """Returns whether this kernel has the event; None if that is not visible."""
        if event.name.startswith("perf:"):
            return perf
        if event.feed is Feed.UPROBE:
            return tracefs is not None and os.access(tracefs / "uprobe_events", os.W_OK)
        if tracefs is None:
            return None
        try:
            (tracefs / "events").stat()
            return (tracefs / "events" / event.name.replace(":", "/")).is_dir()
        except PermissionError:
            return None

    listed: dict[str, dict[str, Any]] = {
        probe.name: {
            "doc": probe.doc,
            "scope": probe.scope.value,
            "rate": probe.rate,
            "by_default": probe.by_default,
            "table": probe.table.name,
            "events": {event.name: there(event) for event in probe.events},
            "columns": _columns(probe.table),
        }
        for probe in PROBES.values()
    }
    series, missing = _series()
    listed[SAMPLES.name] = {
        "doc": _SAMPLED,
        "scope": "sampler",
        "rate": f"once a second, or at {SAMPLES.option}",
        "table": SAMPLES.name,
        "events": {},
        "columns": _columns(SAMPLES),
        "series": series,
        "not_available": missing,
    }
    if json:
        from tracer.store.trace import dump

        typer.echo(dump(listed))
        return
    for probe in PROBES.values():
        _print(probe, {event.name: there(event) for event in probe.events})
    _print_series(listed[SAMPLES.name])


def _columns(table: Table) -> dict[str, dict[str, str]]:
    return {c.name: {"type": c.type.value, "unit": c.unit, "doc": c.doc} for c in table.columns}


def _series() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Returns every series by name, and why some readers are not available here."""
    from tracer.probes.sampler.catalogue import READERS, find_readers

    listed = {
        told.name: {"unit": told.unit, "doc": told.doc, "reader": reader.name}
        for reader in READERS
        for one in reader.series
        for told in (one, one.rate)
        if told is not None
    }
    return listed, find_readers()[1]


def _print_series(listed: dict[str, Any]) -> None:
    typer.echo(f"{SAMPLES.name}: {listed['doc']}")
    typer.echo(f"    rate    {listed['rate']}")
    by_reader: dict[str, list[str]] = {}
    for name, one in listed["series"].items():
        by_reader.setdefault(one["reader"], []).append(name)
    for reader, names in by_reader.items():
        text = f"    {reader:<12}{', '.join(names)}"
        typer.echo(textwrap.fill(text, 78, subsequent_indent=" " * 16))
    for reader, why in listed["not_available"].items():
        text = f"    not here: {reader}: {why}"
        typer.echo(textwrap.fill(text, 78, subsequent_indent=" " * 8))


def _print(probe: Probe, events: dict[str, bool | None]) -> None:
    typer.echo(f"{probe.name}: {probe.doc}")
    typer.echo(f"    rate    {probe.rate}")
    if not probe.by_default:
        typer.echo(f"    option  only with -e default,{probe.name}")
    for name, present in events.items():
        state = {True: "", False: " (not in this kernel)", None: " (not visible)"}[present]
        typer.echo(f"    event   {name}{state}")
    typer.echo()
