"""Opening a trace for a verb: what a killed recorder left is decoded, visibly.

A pack (`tracer pack`) is unpacked into a temporary folder first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from tracer.store.trace import Trace

TracePath = Annotated[
    Path, typer.Argument(metavar="T", help="Trace directory, or a pack.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def open_trace(folder: Path) -> Trace:
    """Open a trace, with a progress bar where it has to be decoded first."""
    from tracer.store.packing import is_pack, open_pack

    if is_pack(folder):
        return open_pack(folder)
    with decoding() as progress:
        return Trace(folder, progress)


@contextlib.contextmanager
def decoding() -> Iterator[Callable[[int, int], None]]:
    """Told how many pages of how many are decoded, shows it on a terminal."""
    from tracer.cli.progress import show_decoding

    bar: Progress | None = None
    task: TaskID | None = None

    def progress(done: int, pages: int) -> None:
        nonlocal bar, task
        bar, task = show_decoding(bar, task, done, pages)

    try:
        yield progress
    finally:
        if bar:
            bar.stop()
