"""`tracer calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.main import named_path


def calibrate(
    target: Annotated[
        Path,
        typer.Argument(
            parser=named_path,
            metavar="FILE",
            help="New file on the device; with --overwrite, an existing file or the device.",
        ),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the catalogue entry.")],
    kind: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="disk or ssd (behind the flush layer), or nvm (its medium)."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=named_path,
            metavar="FILE",
            help="File to write; default: stdout.",
        ),
    ] = None,
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="Size of the area that is measured.")
    ] = "1G",
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time to measure each of 11 access patterns.")
    ] = 10.0,
    depth: Annotated[
        int, typer.Option(metavar="N", help="Concurrent accesses in the patterns with a queue.")
    ] = 32,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Overwrite existing data on the target; the data is lost."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the output.")] = False,
) -> None:
    """Measure one of your devices with fio, for simulate --devices.

    The output is an entry of a device catalogue (TOML): latencies, rates,
    bandwidths and the time of a flush, each with how it was measured. A mounted
    device is never written to. A file that calibrate creates is removed
    afterwards.

    [bold]Examples[/bold]

      tracer calibrate /mnt/ssd/new.file --name my-ssd --kind ssd -o mine.toml

      tracer simulate run.trace --model timed --disk my-ssd --devices mine.toml
    """
    from tracer.analysis.cli.page_output import check_output
    from tracer.analysis.flushlayer.devices.calibrate import KINDS, Kind
    from tracer.analysis.flushlayer.devices.calibrate import calibrate as measured
    from tracer.cli.progress import status
    from tracer.probes.errors import UsageError
    from tracer.sizes import parse_size
    from tracer.store.files import as_invoking_user, unwritable, write_whole

    if kind not in KINDS:
        raise UsageError(f"there is no device kind {kind!r}", f"known: {', '.join(KINDS)}")
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
        typer.echo(text, nl=False)  # It took minutes to measure.
        raise unwritable(output, error, "the entry is printed instead: copy it") from None
