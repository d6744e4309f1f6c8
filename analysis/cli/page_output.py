"""The option `--html`: checks and writes its file. The page is written whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.main import named_path, say
from tracer.probes.errors import UsageError

OUTPUT = "Output"
"""The panel of a help page that has the options of the output."""
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        parser=named_path,
        metavar="FILE",
        help="Write a page that opens offline; -: stdout.",
        rich_help_panel=OUTPUT,
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace FILE if it exists.", rich_help_panel=OUTPUT)
]

_STDOUT = Path("-")


def check_output(output: Path, force: bool, json: bool) -> None:
    """Raises UsageError if the page cannot be written. Call it before the page is made."""
    if output == _STDOUT:
        if json:
            raise UsageError("--html - and --json both write to stdout", "name a file for the page")
        return
    from tracer.store.places import check_file

    check_file(output, force)


def write_page(text: str, output: Path) -> None:
    """Writes a page with mode 0600 and reports its size on stderr; writes it to stdout if `-`."""
    from tracer.sizes import show_size
    from tracer.store.files import as_invoking_user, unwritable, write_whole

    page = text.encode("utf-8", "replace")
    if output == _STDOUT:
        sys.stdout.buffer.write(page)
        sys.stdout.buffer.flush()
        return
    try:
        with as_invoking_user():
            write_whole(output, page)
    except OSError as error:
        raise unwritable(output, error, "name another file with --html") from None
    say(f"{output}: {show_size(len(page))}")
