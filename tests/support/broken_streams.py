"""Streams that cannot be written, for the standard error of a command."""

from __future__ import annotations

import contextlib
import os
import pty
from collections.abc import Iterator

BROKEN = ("no reader", "a full disk", "no terminal", "only to read", "a full pipe")
"""The kinds of broken streams."""


@contextlib.contextmanager
def broken_stream(kind: str) -> Iterator[int]:
    """Yields the file descriptor of a stream to which no byte can be written."""
    stream, *others = _made(kind)
    try:
        yield stream
    finally:
        for fd in (stream, *others):
            os.close(fd)


def _made(kind: str) -> list[int]:
    if kind == "a full disk":
        return [os.open("/dev/full", os.O_WRONLY)]
    if kind == "only to read":
        return [os.open(os.devnull, os.O_RDONLY)]
    if kind == "a full pipe":
        reader, writer = os.pipe2(os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x")
        return [writer, reader]
    reader, stream = pty.openpty() if kind == "no terminal" else os.pipe()
    os.close(reader)
    return [stream]
