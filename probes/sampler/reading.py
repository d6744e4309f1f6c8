"""Series, readers, and the reading of small files of /proc and /sys."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

ROOT = Path("/")
_MOST_BYTES = 1 << 20
_AT_ONCE = 1 << 16

Reading = tuple[str, str | None, float]
"""A value that was read: name of the series, instance (None: there is but one), value."""


@dataclass(frozen=True)
class Rate:
    """The name of a counter's growth over the time between two readings."""

    name: str
    unit: str
    doc: str
    scale: float = 1.0
    """Growth a second times this is the rate."""


@dataclass(frozen=True)
class Series:
    """A value over time."""

    name: str
    unit: str
    doc: str
    rate: Rate | None = None
    """The growth's name, for a series that is a counter and only grows; else None."""


class NotAvailable(Exception):
    """The machine does not give it; `why` is said in the trace."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class Reader(ABC):
    """Reads some series. Making one raises NotAvailable where the machine has none of them."""

    name: ClassVar[str]
    series: ClassVar[tuple[Series, ...]]

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.missing: dict[str, str] = {}
        """Series that this machine does not give, and why."""
        self.facts: dict[str, str] = {}
        """Facts that hold for the whole recording and are no numbers: a governor, a power mode."""
        self.last = False
        """True at the last reading: all files are then read, even if they were read just before."""

    @abstractmethod
    def read(self) -> list[Reading]:
        """The values now. Raises NotAvailable where they can no longer be had."""


def contents(path: Path | str, most: int = _MOST_BYTES) -> str:
    """The text of a small file; NotAvailable where it cannot be read or is longer than `most`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = b""
            while len(data) <= most and (more := os.read(fd, _AT_ONCE)):
                data += more
        finally:
            os.close(fd)
    except OSError as error:
        raise NotAvailable(f"{path}: {os.strerror(error.errno or 0)}") from None
    if len(data) > most:
        raise NotAvailable(f"{path} is longer than {most} bytes")
    return data.decode("utf-8", "replace")


def number(path: Path | str) -> int:
    """The integer that a file holds; NotAvailable where it holds none."""
    text = contents(path, 64).strip()
    try:
        return int(text)
    except ValueError:
        raise NotAvailable(f"{path} holds {text[:40]!r}, which is no number") from None


def numbers(path: Path | str, wanted: frozenset[str]) -> dict[str, int]:
    """Lines of a name and a number, as /proc/vmstat and memory.stat have them.

    Those of `wanted` alone; what is not there is absent. NotAvailable for what is no number.
    """
    found = {}
    for line in contents(path).splitlines():
        name, _, rest = line.partition(" ")
        name = name.removesuffix(":")
        if name in wanted:
            try:
                found[name] = int(rest.split()[0])
            except (ValueError, IndexError):
                raise NotAvailable(f"{path} says {line[:60]!r}, which is no number") from None
    return found
