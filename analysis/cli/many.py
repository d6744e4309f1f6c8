"""Arguments, scheduler option and progress of the verbs that read many traces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tracer.analysis.scale.sources import Source
    from tracer.store.trace import Trace

Locations = Annotated[
    list[str],
    typer.Argument(metavar="T", help="Traces, packs, folders of traces, URLs.", show_default=False),
]
"""Strings, because a Path would change a URL."""

Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="WHERE",
        help="Read traces in local:N processes, or on the Dask scheduler at tcp://HOST:PORT.",
    ),
]


def shown_reading() -> AbstractContextManager[Callable[[int, int], None]]:
    """Returns a function that shows the progress on stderr, if that is a terminal.

    Its arguments: the number of traces read, and of all traces.
    """
    from tracer.cli.progress import counted

    return counted("reading traces")


@contextlib.contextmanager
def opened_here(source: Source) -> Iterator[Trace]:
    """Opens one trace in this process, with a progress bar if it has to be decoded first."""
    from tracer.analysis.scale.sources import opened
    from tracer.cli.opening import decoding

    with decoding() as progress, opened(source, progress) as trace:
        yield trace
