"""What every mechanism is that sets the speed of the whole machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from workloads.errors import explained

ROOT = Path("/")

Before = dict[str, Any]
"""What was there before a mechanism set anything, as JSON has it."""


class Lacking(Exception):
    """The machine does not offer it; the text says why."""


class Mechanism(ABC):
    """Sets one thing of a power mode. Making one raises Lacking where the machine has none."""

    name: ClassVar[str]
    sets: ClassVar[str]
    """The field of PowerMode."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    @abstractmethod
    def now(self) -> float | None:
        """The setting as it is; None where it cannot be told as a number."""

    @abstractmethod
    def choices(self) -> list[Any]:
        """Some of the settings that the machine can have, the lowest first."""

    @abstractmethod
    def remember(self) -> Before:
        """What `restore` is to put back."""

    @abstractmethod
    def set(self, value: Any) -> None:
        """Raises JobError where the machine refuses the value."""

    @abstractmethod
    def restore(self, before: Before) -> None:
        """Put back what was there; more than once does no harm. Raises JobError."""


def read(path: Path) -> str:
    """The text of a small file of the kernel. Raises JobError."""
    with explained(f"cannot read {path}", "power modes are set as root"):
        return path.read_text().strip()


def write(path: Path, text: str) -> None:
    """Write a small file of the kernel. Raises JobError where the kernel refuses the text."""
    with explained(f"cannot write {text!r} to {path}", "power modes are set as root"):
        path.write_text(text)
