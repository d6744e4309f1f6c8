"""The architectures of guests, and how QEMU makes a machine of each."""

from __future__ import annotations

import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """An architecture that QEMU can emulate."""

    name: str
    """Debian's name."""
    machine: str
    """The kernel's name: `uname -m`."""
    qemu: str
    package: str
    """Debian's package of that QEMU."""
    options: tuple[str, ...]
    console: str
    """The serial line that QEMU prints."""

    @property
    def is_here(self) -> bool:
        """Returns whether programs of this machine run in a guest."""
        return platform.machine() == self.machine


# A lesser x86 CPU lacks AVX, which libraries of the tracer need. Arm's own algorithm of pointer
# authentication is slow to emulate.
ARCHITECTURES = {
    known.name: known
    for known in (
        Architecture(
            "amd64",
            "x86_64",
            "qemu-system-x86_64",
            "qemu-system-x86",
            ("-cpu", "max"),
            "ttyS0",
        ),
        Architecture(
            "arm64",
            "aarch64",
            "qemu-system-aarch64",
            "qemu-system-arm",
            ("-machine", "virt", "-cpu", "max,pauth-impdef=on"),
            "ttyAMA0",
        ),
    )
}
"""By Debian's name."""
