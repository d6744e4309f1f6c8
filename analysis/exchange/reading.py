"""Bounded reading of untrusted files."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

from tracer.probes.errors import BadTrace, PermissionMissing
from tracer.store.files import open_regular

MOST_TEXT = 64 << 20
"""The most bytes of a part of a file that is read as a whole."""


def opened(path: Path) -> BinaryIO:
    """Opens a regular file for reading. Raises BadTrace or PermissionMissing if it cannot."""
    try:
        return open_regular(path, follow=True)
    except PermissionError:
        raise PermissionMissing(
            f"{path} cannot be read by this user", "run as its owner, or as root"
        ) from None
    except FileNotFoundError:
        raise BadTrace(f"there is no file {path}", "check its name") from None
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}", "check its name") from None
    except ValueError:
        raise BadTrace(f"{path} is not a regular file", "give a file") from None


TORN = "the file is cut off within its last line, which is left out"
"""Note on a text whose last line has no end."""
_LONGEST_TAIL = 1 << 20


def whole_lines(
    path: Path, is_whole: Callable[[bytes], bool] = lambda line: False
) -> tuple[BinaryIO, list[str]]:
    """Opens a text without a last line that has no end: its last number may be cut off.

    Returns the file, and notes: `TORN` if a line is left out. `is_whole`: returns whether a line
    without an end is whole nevertheless. A file of one line is that line. Errors: as `opened`.
    """
    file = opened(path)
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - _LONGEST_TAIL))
    tail = file.read()
    file.seek(0)
    last = tail[tail.rfind(b"\n") + 1 :]
    if not last or len(last) == len(tail) or is_whole(last):
        return file, []
    return cast(BinaryIO, io.BufferedReader(_Beginning(file, size - len(last)))), [TORN]


class _Beginning(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class Reader:
    """A reader of little-endian numbers and strings of a file, which checks every length."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = opened(path)
        self.size = os.fstat(self.file.fileno()).st_size

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.file.close()

    def cut(self, what: str) -> BadTrace:
        """Returns the error for a file that ends, or is invalid, at this part."""
        return BadTrace(f"{self.path} is cut off or damaged: {what}", "copy it again")

    def seek(self, offset: int, what: str) -> None:
        """Moves to this offset."""
        if not 0 <= offset <= self.size:
            raise self.cut(what)
        self.file.seek(offset)

    def take(self, count: int, what: str) -> bytes:
        """Returns the next `count` bytes."""
        if count > min(MOST_TEXT, self.size):
            raise self.cut(what)
        data = self.file.read(count)
        if len(data) != count:
            raise self.cut(what)
        return data


class Fields:
    """A reader of little-endian numbers and strings in memory, which checks every length."""

    def __init__(self, data: bytes, error: Any) -> None:
        """Sets `error`, which makes the exception for a part that does not fit, from its name."""
        self._data = data
        self._error = error
        self.at = 0

    @property
    def left(self) -> int:
        """The number of bytes not yet read."""
        return len(self._data) - self.at

    def take(self, count: int, what: str) -> bytes:
        """Returns the next `count` bytes."""
        if count > self.left:
            raise self._error(what)
        found = self._data[self.at : self.at + count]
        self.at += count
        return found

    def number(self, size: int, what: str) -> int:
        """Returns an unsigned number of 1, 2, 4 or 8 bytes."""
        form = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}[size]
        value: int = struct.unpack(form, self.take(size, what))[0]
        return value

    def string(self, what: str) -> bytes:
        """Returns the bytes before the next NUL, and skips the NUL."""
        end = self._data.find(b"\0", self.at)
        if end < 0:
            raise self._error(what)
        found = self._data[self.at : end]
        self.at = end + 1
        return found


def text(raw: bytes) -> str:
    """Returns bytes as text; bytes that are not UTF-8 become \\xNN."""
    return raw.decode("utf-8", "backslashreplace")
