"""`tracer calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A new file on the device, or with --overwrite the device."
        ),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="What to call it.")],
    kind: Annotated[str, typer.Option(help="disk or ssd (behind a layer), or nvm (of a layer).")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write it; stdout otherwise."),
    ] = None,
    size: Annotated[
        str, typer.Option(metavar="BYTES", help="How much of the device is used.")
    ] = "1G",
    seconds: Annotated[
        float, typer.Option(metavar="S", help="How long each of 11 patterns is measured.")
    ] = 10.0,
    depth: Annotated[
        int, typer.Option(metavar="N", help="Accesses at once, where many are measured.")
    ] = 32,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Measure on what holds data, which is lost.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the output.")] = False,
) -> None:
    """Measure a device of yours by fio, for simulate --devices.

    Latencies, rates, bandwidths and the time of a flush become an entry of a
    device catalogue (TOML), each with how it was measured. A device that is
    mounted is never written to; a file that was made is removed again.

    [bold]Examples[/bold]

      tracer calibrate /mnt/ssd/new.file --name my-ssd --kind ssd -o mine.toml

      tracer simulate run.trace --model timed --disk my-ssd --devices mine.toml
    """
    from analysis.cli.page_output import check_output
    from analysis.flushlayer.devices.calibrate import KINDS, Kind
    from analysis.flushlayer.devices.calibrate import calibrate as measured
    from probes.errors import UsageError
    from tracer.cli.progress import status
    from tracer.sizes import parse_size
    from tracer.store.files import as_invoking_user, write_whole

    if kind not in KINDS:
        raise UsageError(f"there is no kind {kind!r} of device", f"known: {', '.join(KINDS)}")
    chosen: Kind = KINDS[kind]
    if output is not None:
        check_output(output, force, json=False)
    with status("measuring") as progress:
        text = measured(
            target,
            name,
            chosen,
            size=parse_size(size),
            seconds=seconds,
            depth=depth,
            overwrite=overwrite,
            progress=progress,
        )
    if output is None or output == Path("-"):
        typer.echo(text, nl=False)
        return
    try:
        with as_invoking_user():
            write_whole(output, text.encode())
    except OSError as error:
        raise UsageError(
            f"cannot write {output}: {error.strerror}", "name another file with -o"
        ) from None
