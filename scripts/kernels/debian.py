"""Debian's kernels: found, downloaded and unpacked by a private apt configuration.

Nothing is installed, and the machine's own package lists stay as they are.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scripts.kernels.errors import CannotTest

SUITES = ("bullseye", "bookworm", "trixie", "sid")
"""Debian's releases, oldest first. Each has the kernel that was current when it was frozen."""
MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_IMAGE, _HEADERS, _BUSYBOX = "linux-image-amd64", "linux-headers-amd64", "busybox-static"
_PARTS = re.compile(r"linux-(image|base|binary|modules|headers)-")
"""Packages that together make up a kernel and its headers. Other dependencies install or compile
kernels, which nobody does here."""
_DONE = "unpacked"


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel."""

    suite: str
    release: str
    image: Path
    modules: Path
    """The folder that is /lib/modules/RELEASE where the kernel is installed."""
    sources: Path
    """The folder that is /usr/src where the headers are installed."""
    busybox: Path
    """A busybox without shared libraries."""


def kernel_of(suite: str, cache: Path) -> Kernel:
    """Returns a suite's kernel, which is downloaded into the cache unless it is there already.

    Raises CannotTest.
    """
    folder = cache / suite
    root = folder / "root"
    if not (folder / _DONE).exists():
        for tool in ("apt-get", "apt-cache", "dpkg-deb"):
            if shutil.which(tool) is None:
                raise CannotTest(f"there is no {tool}: kernels come from Debian's packages")
        if not KEYRING.exists():
            raise CannotTest(f"{KEYRING} is missing: apt-get install debian-archive-keyring")
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for package in _download(folder, suite):
            _ran(["dpkg-deb", "--extract", str(package), str(root)])
            package.unlink()
        (folder / _DONE).touch()
    (modules,) = _found(root, ("lib/modules/*/kernel", "usr/lib/modules/*/kernel"), "modules")
    release = modules.parent.name
    images = (f"boot/vmlinuz-{release}", f"lib/modules/{release}/vmlinuz")
    (image,) = _found(root, (*images, f"usr/{images[1]}"), "kernel image")
    (busybox,) = _found(root, ("bin/busybox", "usr/bin/busybox"), "busybox")
    return Kernel(suite, release, image, modules.parent, root / "usr/src", busybox)


def _found(root: Path, patterns: Iterable[str], what: str) -> list[Path]:
    found = sorted(path for pattern in patterns for path in root.glob(pattern))
    if len(found) != 1:
        raise CannotTest(f"{root} has {len(found)} files for its {what}; remove {root.parent}")
    return found


def _download(folder: Path, suite: str) -> list[Path]:
    """Downloads the packages of a suite's kernel; returns their files."""
    apt = _options(folder, suite)
    _ran(["apt-get", *apt, "--quiet=2", "update"])
    packages, found = [_IMAGE, _HEADERS], {_BUSYBOX}
    while packages:
        package = packages.pop()
        for name in _dependencies(apt, package):
            if _PARTS.match(name) and name not in found:
                found.add(name)
                packages.append(name)
    into = folder / "packages"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    _ran(["apt-get", *apt, "--quiet=2", "download", *sorted(found)], into)
    return sorted(into.glob("*.deb"))


def _options(folder: Path, suite: str) -> list[str]:
    """Makes the folders of a private apt; returns the options that make apt use them."""
    apt = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    source = apt / "sources.list"
    source.write_text(f"deb [arch=amd64 signed-by={KEYRING}] {MIRROR} {suite} main\n")
    settings = {
        "Dir::Etc::sourcelist": source,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": apt / "cache",
        "Acquire::Languages": "none",
        # Another user could not write to these folders.
        "APT::Sandbox::User": "",
        "APT::Architecture": "amd64",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _dependencies(apt: list[str], package: str) -> list[str]:
    """Returns the names of a package's dependencies; the first of several alternatives."""
    told = _ran(["apt-cache", *apt, "show", "--no-all-versions", package])
    line = next((line for line in told.splitlines() if line.startswith("Depends: ")), "Depends: ")
    return [part.split()[0] for part in line.removeprefix("Depends: ").split(",") if part.strip()]


def _ran(command: list[str], folder: Path | None = None) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if ran.returncode:
        raise CannotTest(f"{command[0]} failed: {(ran.stderr or ran.stdout).strip()[-500:]}")
    return ran.stdout
