"""`tracer import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.main import A_TRACE, named_path, say, verb, written_path


def _formats() -> str:
    from tracer.analysis.exchange.formats import FORMATS

    lines = [f"{one.name}: {one.doc}" for one in FORMATS.values()]
    return "[bold]Formats[/bold]\n\n" + "\n\n".join(lines)


@verb(epilog=_formats)
def import_trace(
    source: Annotated[
        Path,
        typer.Argument(
            parser=named_path, metavar="FILE", help="File to import.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            parser=written_path(A_TRACE),
            metavar="DIR.trace",
            help="Trace to write.",
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Format of the file (see below). Default: detected from its content.",
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            "--arch",
            metavar="NAME",
            help="Architecture of the recorded machine (x86_64, aarch64), for text of perf script "
            "or trace-cmd report that does not name it. It names system calls.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing trace.")] = False,
) -> None:
    """Convert another tool's file into a trace, for reports and what-ifs.

    Values that the file does not hold are null. tracer info lists the assumptions
    made and the input that was not understood.

    [bold]Examples[/bold]

      perf script --header > run.txt && tracer import run.txt -o run.trace

      tracer import trace.dat -o run.trace

      tracer import sda.blktrace.0 -o run.trace

      tracer import hm_0.csv -o hm_0.trace --format msr-csv
    """
    from tracer.analysis.exchange.formats import import_file
    from tracer.store import manifest as manifests
    from tracer.store.files import writing

    with writing(output):
        name = import_file(source, output, format, force, arch)
        manifest = manifests.read(output)
    rows = ", ".join(f"{facts['rows']} {table}" for table, facts in manifest["tables"].items())
    say(f"{output}: {name}: {rows}")
    for what, count in manifest.get("imported", {}).get("not_understood", {}).items():
        say(f"not imported: {what}: {count}")
