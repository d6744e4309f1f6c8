"""`tracer pack` and `tracer unpack`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.main import A_TRACE, named_path, say, written_path


def pack(
    trace: Annotated[
        Path,
        typer.Argument(parser=named_path, metavar="T", help="Trace directory.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=written_path("a pack is a file"),
            metavar="FILE",
            help="File to write; default: T.tar.zst.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Include the raw streams, so that they can be decoded again later."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Pack a trace into one compressed file that can be sent.

    The file holds the tables and the manifest, each with a checksum. info, report
    and other verbs read a pack directly; tracer unpack turns it into a trace
    directory.

    [bold]Example[/bold]

      tracer pack run.trace -o run.trace.tar.zst
    """
    from tracer.probes.errors import UsageError
    from tracer.probes.text import shell_word
    from tracer.sizes import show_size
    from tracer.store.files import writing
    from tracer.store.packing import SUFFIX, is_pack
    from tracer.store.packing import pack as pack_trace

    if is_pack(trace):
        raise UsageError(
            f"{trace} is a pack already", f"unpack it with: tracer unpack {shell_word(trace)}"
        )
    target = output or Path(f"{trace.resolve().name}{SUFFIX}")
    with writing(target):
        size = pack_trace(trace, target, raw, force)
    say(f"{target}: {show_size(size)}")


def unpack(
    file: Annotated[
        Path,
        typer.Argument(
            parser=named_path, metavar="FILE", help="Pack to unpack.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=written_path(A_TRACE),
            metavar="DIR.trace",
            help="Trace to write; default: named after FILE.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing trace.")] = False,
) -> None:
    """Check a pack for damage and unpack it into a trace directory.

    Makes nothing if one of the files differs from its checksum.

    [bold]Example[/bold]

      tracer unpack run.trace.tar.zst
    """
    from tracer.store.files import writing
    from tracer.store.packing import SUFFIX
    from tracer.store.packing import unpack as unpack_trace

    name = file.name.removesuffix(SUFFIX).removesuffix(".trace")
    target = output or Path(f"{name}.trace")
    with writing(target):
        unpack_trace(file, target, force)
    say(str(target))
