"""`tracer list`."""

from __future__ import annotations

import os

import typer

from probes.catalogue import PROBES
from probes.schema import Event, Probe
from tracer.cli.opening import AsJson


def list_probes(json: AsJson = False) -> None:
    """Show the probes: what feeds each, whether it is there, and how often it fires.

    --json has the columns of each probe's table, too.

    [bold]Example[/bold]

      tracer list --json | jq .block.columns
    """
    from probes.backends.perf_events.attributes import perf_events
    from probes.kernel import find_tracefs
    from probes.schema import Feed

    tracefs = find_tracefs()

    perf = perf_events()

    def there(event: Event) -> bool | None:
        """Whether this kernel has the event; None where that cannot be seen."""
        if event.feed is Feed.PERF:
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

    listed = {
        probe.name: {
            "doc": probe.doc,
            "scope": probe.scope.value,
            "rate": probe.rate,
            "table": probe.table.name,
            "events": {event.name: there(event) for event in probe.events},
            "columns": {
                c.name: {"type": c.type.value, "unit": c.unit, "doc": c.doc}
                for c in probe.table.columns
            },
        }
        for probe in PROBES.values()
    }
    if json:
        from tracer.store.trace import dump

        typer.echo(dump(listed))
        return
    for probe in PROBES.values():
        _print(probe, {event.name: there(event) for event in probe.events})


def _print(probe: Probe, events: dict[str, bool | None]) -> None:
    typer.echo(f"{probe.name}: {probe.doc}")
    typer.echo(f"    rate    {probe.rate}")
    for name, present in events.items():
        state = {True: "", False: " (not in this kernel)", None: " (cannot be seen)"}[present]
        typer.echo(f"    event   {name}{state}")
    typer.echo()
