"""The interface of every mechanism that sets the speed of the whole machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from tracer.workloads.errors import explained

ROOT = Path("/")

Before = dict[str, Any]
"""The state before a mechanism changed anything, as values for JSON."""


class Lacking(Exception):
    """A mechanism that the machine lacks; the text is the reason."""


class Mechanism(ABC):
    """A way to set one field of a power mode. The constructor raises Lacking if it is missing."""

    name: ClassVar[str]
    sets: ClassVar[str]
    """The field of PowerMode that it sets."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    @abstractmethod
    def now(self) -> float | None:
        """Returns the current value of the setting; None if it is not a number."""

    @abstractmethod
    def choices(self) -> list[Any]:
        """Returns some of the values that the machine can have, the lowest first."""

    @abstractmethod
    def remember(self) -> Before:
        """Returns the current state, for `restore`."""

    @abstractmethod
    def set(self, value: Any) -> None:
        """Sets a value. Raises JobError if the machine refuses it."""

    @abstractmethod
    def restore(self, before: Before) -> None:
        """Restores the state before. It may be called more than once. Raises JobError."""


def read(path: Path) -> str:
    """Returns the text of a small file of the kernel. Raises JobError."""
    with explained(f"cannot read {path}", "run as root to set power modes"):
        return path.read_text().strip()


def write(path: Path, text: str) -> None:
    """Writes a small file of the kernel. Raises JobError if the kernel refuses the text."""
    with explained(f"cannot write {text!r} to {path}", "run as root to set power modes"):
        path.write_text(text)
