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
_MOST_VALUE = 1 << 64
"""Least value that no counter of the kernel reaches."""

Reading = tuple[str, str | None, float]
"""A value that was read: name of the series, instance (None: there is only one), value."""


@dataclass(frozen=True)
class Rate:
    """The name of a counter's growth over the time between two readings."""

    name: str
    unit: str
    doc: str
    scale: float = 1.0
    """Factor from growth per second to the rate."""


@dataclass(frozen=True)
class Series:
    """A value over time."""

    name: str
    unit: str
    doc: str
    rate: Rate | None = None
    """Rate at which the series grows, if it is a counter; else None."""
    in_ticks: bool = False
    """True: the kernel counts in clock ticks (`SC_CLK_TCK`); a rate over a few says little."""
    identifies: bool = False
    """True: the value identifies something, so no table has its mean."""


class NotAvailable(Exception):
    """The machine does not give a value. The trace records the reason, `why`."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class Reader(ABC):
    """A reader of some series. Its constructor raises NotAvailable if the machine has none."""

    name: ClassVar[str]
    series: ClassVar[tuple[Series, ...]]

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.missing: dict[str, str] = {}
        """Series that this machine does not give, with the reason."""
        self.facts: dict[str, str] = {}
        """Facts about the whole recording that are not numbers: a governor, a power mode."""
        self.last = False
        """True at the last reading: all files are then read, even if they were read just before."""

    @abstractmethod
    def read(self) -> list[Reading]:
        """Returns the values now. Raises NotAvailable if they are no longer available."""


def contents(path: Path | str, most: int = _MOST_BYTES) -> str:
    """Returns the text of a small file.

    Raises NotAvailable if it cannot be read or is longer than `most` bytes.
    """
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
    """Returns the integer in a file. Raises NotAvailable if there is none within 64 bits."""
    text = contents(path, 64).strip()
    try:
        return _integer(text)
    except ValueError:
        raise NotAvailable(f"{path} has {text[:40]!r} in place of a number") from None


def numbers(path: Path | str, wanted: frozenset[str]) -> dict[str, int]:
    """Returns the numbers named in `wanted` from lines of a name and a number.

    /proc/vmstat and memory.stat have such lines. Names that the file lacks are absent. Raises
    NotAvailable if a value is not a number within 64 bits.
    """
    found = {}
    for line in contents(path).splitlines():
        name, _, rest = line.partition(" ")
        name = name.removesuffix(":")
        if name in wanted:
            try:
                found[name] = _integer(rest.split()[0])
            except (ValueError, IndexError):
                raise NotAvailable(f"{path} has the line {line[:60]!r} without a number") from None
    return found


def _integer(text: str) -> int:
    value = int(text)
    if abs(value) >= _MOST_VALUE:
        raise ValueError(text)
    return value
