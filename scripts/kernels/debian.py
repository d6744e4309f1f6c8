"""Debian's kernels, unpacked from their packages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scripts.kernels.architectures import ARCHITECTURES, Architecture
from scripts.kernels.errors import CannotTest
from scripts.kernels.packages import Packages

KERNELS = {
    "bullseye": ("bullseye", "amd64"),
    "bookworm": ("bookworm", "amd64"),
    "trixie": ("trixie", "amd64"),
    "sid": ("sid", "amd64"),
    "bookworm-arm64": ("bookworm", "arm64"),
    "trixie-arm64": ("trixie", "arm64"),
}
"""Suites and architectures by the kernel's name here. Each of Debian's suites has the kernel that
was current when it was frozen. Oldest first."""

_BUSYBOX = "busybox-static"
_PARTS = re.compile(r"linux-(image|base|binary|modules|headers)-")
"""Packages that together make up a kernel and its headers. Other dependencies install or compile
kernels, which nobody does here."""
_DONE = "unpacked"


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel."""

    architecture: Architecture
    suite: str
    release: str
    image: Path
    modules: Path
    """The folder that is /lib/modules/RELEASE where the kernel is installed."""
    sources: Path
    """The folder that is /usr/src where the headers are installed."""
    busybox: Path
    """A busybox without shared libraries."""


def kernel_of(name: str, cache: Path) -> Kernel:
    """Returns a kernel, which is downloaded into the cache unless it is there already.

    Raises CannotTest.
    """
    suite, architecture = KERNELS[name]
    folder = cache / name
    root = folder / "root"
    if not (folder / _DONE).exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        packages = Packages(folder / "apt", suite, architecture)
        packages.unpack(_parts(packages, architecture), root)
        (folder / _DONE).touch()
    lists = ("lib/modules/*/modules.builtin", "usr/lib/modules/*/modules.builtin")
    (listed,) = _found(root, lists, "list of built-in modules")
    modules, release = listed.parent, listed.parent.name
    images = (f"boot/vmlinuz-{release}", f"lib/modules/{release}/vmlinuz")
    (image,) = _found(root, (*images, f"usr/{images[1]}"), "kernel image")
    (busybox,) = _found(root, ("bin/busybox", "usr/bin/busybox"), "busybox")
    known = ARCHITECTURES[architecture]
    return Kernel(known, suite, release, image, modules, root / "usr/src", busybox)


def _found(root: Path, patterns: Iterable[str], what: str) -> list[Path]:
    found = sorted(path for pattern in patterns for path in root.glob(pattern))
    if len(found) != 1:
        raise CannotTest(f"{root} has {len(found)} files for its {what}: remove {root.parent}")
    return found


def _parts(packages: Packages, architecture: str) -> set[str]:
    """Returns the names of the packages of a kernel and its headers."""
    waiting, found = [f"linux-{part}-{architecture}" for part in ("image", "headers")], {_BUSYBOX}
    while waiting:
        for name in packages.dependencies(waiting.pop()):
            if _PARTS.match(name) and name not in found:
                found.add(name)
                waiting.append(name)
    return found
