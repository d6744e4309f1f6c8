"""`tracer clean`."""

from __future__ import annotations

from typing import Annotated

import typer

from tracer.cli.opening import AsJson

_PATIENCE_S = 20.0
"""Time in s to wait for the guardian of a just killed recorder, which may still read."""


def clean(
    json: AsJson = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List what would be removed; remove nothing."),
    ] = False,
) -> None:
    """Remove what a killed recording left in the kernel, and nothing else.

    Instances of running recorders and of other tools are never touched.

    [bold]Example[/bold]

      sudo tracer clean --dry-run
    """
    from tracer.probes.backends.ftrace import instance
    from tracer.probes.backends.uprobes import events
    from tracer.probes.kernel import need_process_numbers_of_events
    from tracer.store.trace import dump

    need_process_numbers_of_events()  # Elsewhere, recorders that run cannot be seen.
    removed, kept = [], []
    for leftover in instance.ours():
        if leftover.owner_alive:
            kept.append(leftover.path.name)
            continue
        if not dry_run:
            instance.remove(leftover.path, _PATIENCE_S)
        removed.append(leftover.path.name)
    for group in events.ours():
        if group.owner_alive:
            kept.append(group.name)
            continue
        if not dry_run:
            events.remove(group.name)
        removed.append(group.name)
    if json:
        typer.echo(dump({"removed": removed, "kept": kept, "dry_run": dry_run}))
        return
    for name in removed:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {name}")
    for name in kept:
        typer.echo(f"kept {name}: its recorder is still running")
    if not removed and not kept:
        typer.echo("nothing to clean")
