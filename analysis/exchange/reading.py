"""Bounded reading of files that anybody may have made."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from probes.errors import BadTrace, PermissionMissing
from tracer.store.files import open_regular

MOST_TEXT = 64 << 20
"""No part of a file that is read as a whole is longer than that."""


def opened(path: Path) -> BinaryIO:
    """A regular file opened for reading; BadTrace or PermissionMissing where it cannot be."""
    try:
        return open_regular(path, follow=True)
    except PermissionError:
        raise PermissionMissing(
            f"{path} may not be read by this user", "run as its owner, or as root"
        ) from None
    except FileNotFoundError:
        raise BadTrace(f"there is no file {path}", "check its name") from None
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}", "check its name") from None
    except ValueError:
        raise BadTrace(f"{path} is no regular file", "give a file") from None


class Reader:
    """Little-endian numbers and strings of a file, each checked against what is there."""

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
        """The error that the file ends, or makes no sense, at this part."""
        return BadTrace(f"{self.path} is cut off or damaged: {what}", "copy it again")

    def seek(self, offset: int, what: str) -> None:
        """Go on reading there."""
        if not 0 <= offset <= self.size:
            raise self.cut(what)
        self.file.seek(offset)

    def take(self, count: int, what: str) -> bytes:
        """So many bytes."""
        if count > min(MOST_TEXT, self.size):
            raise self.cut(what)
        data = self.file.read(count)
        if len(data) != count:
            raise self.cut(what)
        return data


class Fields:
    """Little-endian numbers and strings of bytes in memory, each checked against their end."""

    def __init__(self, data: bytes, error: Any) -> None:
        """`error` makes the exception for what does not fit, of its name."""
        self._data = data
        self._error = error
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self.at

    def take(self, count: int, what: str) -> bytes:
        """So many bytes."""
        if count > self.left:
            raise self._error(what)
        found = self._data[self.at : self.at + count]
        self.at += count
        return found

    def number(self, size: int, what: str) -> int:
        """An unsigned number of 1, 2, 4 or 8 bytes."""
        form = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}[size]
        value: int = struct.unpack(form, self.take(size, what))[0]
        return value

    def string(self, what: str) -> bytes:
        """The bytes before the next NUL, which is passed."""
        end = self._data.find(b"\0", self.at)
        if end < 0:
            raise self._error(what)
        found = self._data[self.at : end]
        self.at = end + 1
        return found


def text(raw: bytes) -> str:
    """Bytes as text: what is no UTF-8 is shown as \\xNN."""
    return raw.decode("utf-8", "backslashreplace")
