"""Opens a trace for a verb, with a progress bar if a killed recorder left undecoded data.

A pack (`tracer pack`) is first unpacked into a temporary folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from tracer.cli.main import named_path
from tracer.store.trace import Trace

TracePath = Annotated[
    Path,
    typer.Argument(
        parser=named_path, metavar="T", help="Trace directory, or a pack.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@contextlib.contextmanager
def open_trace(folder: Path) -> Iterator[Trace]:
    """Opens a trace or a pack, with a progress bar if the trace has to be decoded first."""
    from tracer.store.packing import is_pack, open_pack

    if is_pack(folder):
        with open_pack(folder) as trace:
            yield trace
        return
    with decoding() as progress:
        trace = Trace(folder, progress)
    with trace:
        yield trace


@contextlib.contextmanager
def decoding() -> Iterator[Callable[[int, int], None]]:
    """Yields a function (decoded pages, all pages) that shows a bar on a terminal."""
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
