"""The standard streams of `tracer`."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Any

STDOUT = "standard output"
"""The name of the file in errors of standard output."""
_ESCAPE = "tracer.escape"


class _Output(io.FileIO):
    """Standard output. Its errors name it, unlike those of Python's own."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # What is left in the buffers fails again when the interpreter ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            error.filename = STDOUT
            raise


class _Errors(io.FileIO):
    """Standard error. What it cannot take is lost: words about a result must not end the work.

    Its reader may be gone, its disk or its pipe full, its terminal closed.
    """

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(data) if written is None else written


def open_standard_streams() -> None:
    """Opens /dev/null as stdin, stdout or stderr if that stream is closed.

    Otherwise the next opened file would become that stream, also for the recorded command.
    Characters that standard output cannot encode are escaped, as JSON escapes them. What stderr
    cannot take is lost without an error.
    """
    codecs.register_error(_ESCAPE, _escaped)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))
    out, err = sys.__stdout__, sys.__stderr__
    if out is not None and sys.stdout is out and out.fileno() == 1:
        escaped = out.errors == "strict" or not _is_utf_8(out.encoding)
        sys.stdout = _text(_Output(1, "w", closefd=False), out, _ESCAPE if escaped else out.errors)
    if err is not None and sys.stderr is err and err.fileno() == 2:
        sys.stderr = _text(_Errors(2, "w", closefd=False), err, err.errors)


def _text(raw: io.RawIOBase, before: Any, errors: str | None) -> io.TextIOWrapper:
    """Returns a text stream that encodes as the one before, and writes no line later than it."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        before.encoding,
        errors,
        # With PYTHONUNBUFFERED, `write_through` alone is set: it reaches the buffer, not the file.
        line_buffering=before.line_buffering or before.write_through,
    )


def _is_utf_8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Returns the UTF-16 units of the characters that cannot be encoded, each as \\uXXXX."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4)), error.end
