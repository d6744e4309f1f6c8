"""What verbs share that read many traces: how they are named, where work is done, how far it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from analysis.scale.sources import Source
    from tracer.store.trace import Trace

Locations = Annotated[
    list[str],
    typer.Argument(
        metavar="T", help="Traces, packs, folders that hold some, URLs.", show_default=False
    ),
]
"""Texts, since a Path would spoil a URL."""

Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="WHERE",
        help="Read traces on local:N processes, or by Dask's scheduler at tcp://HOST:PORT.",
    ),
]


def shown_reading() -> AbstractContextManager[Callable[[int, int], None]]:
    """Told how many traces of how many were read, shows it on a terminal's stderr."""
    from tracer.cli.progress import counted

    return counted("reading traces")


@contextlib.contextmanager
def opened_here(source: Source) -> Iterator[Trace]:
    """One trace, open in this process, with a progress bar where it has to be decoded first."""
    from analysis.scale.sources import opened
    from tracer.cli.opening import decoding

    with decoding() as progress, opened(source, progress) as trace:
        yield trace
