"""The root of a guest: this machine's, or for another architecture one of packages and wheels."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.kernels.debian import Kernel
from scripts.kernels.errors import CannotTest
from scripts.kernels.packages import Packages, ran

PROJECT = Path(__file__).resolve().parent.parent.parent

_PACKAGES = ("dash", "libseccomp2", "mount", "python3", "python3-bpfcc")
"""Debian's packages that the tests need in a guest: what `make setup` installs of them, and what
every machine has."""
_MERGED = ("bin", "lib", "sbin")
"""Folders that are links into /usr on an installed system."""
_DONE = "guest-unpacked"


@dataclass(frozen=True)
class Root:
    """The root of a guest."""

    folder: Path
    """A folder of this machine."""
    python: Path
    """An interpreter in the guest."""
    libraries: Path | None
    """The folder of Python's packages in the guest, unless the interpreter knows it."""
    shared: tuple[Path, ...]
    """Folders of this machine that the guest sees in the same place, beside its root."""


def root_of(kernel: Kernel, folder: Path) -> Root:
    """Returns the root of a kernel's guest; one of its own is made in `folder` at first.

    Raises CannotTest.
    """
    if kernel.architecture.is_here:
        return Root(Path("/"), PROJECT / ".venv/bin/python", None, ())
    root, libraries = folder / "guest", Path("opt/tracer")
    if not (folder / _DONE).exists():
        shutil.rmtree(root, ignore_errors=True)
        for name in _MERGED:
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
        packages = Packages(folder / "apt", kernel.suite, kernel.architecture.name)
        packages.unpack_all(_PACKAGES, root)
        for name, line in {"passwd": "root:x:0:0::/root:/bin/sh", "group": "root:x:0:"}.items():
            (root / "etc" / name).write_text(line + "\n")
        _install(root, libraries, kernel.architecture.machine)
        (folder / _DONE).touch()
    return Root(root, Path("/usr/bin/python3"), Path("/", libraries), (PROJECT, folder))


def _install(root: Path, libraries: Path, machine: str) -> None:
    """Installs wheels of the project's requirements, in the versions that this machine has."""
    pythons = sorted(path.name for path in root.glob("usr/bin/python3.*"))
    if len(pythons) != 1:
        raise CannotTest(f"{root} has {len(pythons)} Pythons; remove {root.parent}")
    wanted = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    versions = root.parent / "constraints.txt"
    versions.write_text("".join(f"{line}\n" for line in sorted(set(_installed()))))
    kinds = [f"manylinux{kind}_{machine}" for kind in ("2014", "_2_17", "_2_27", "_2_28")]
    ran(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--target", str(root / libraries), "--only-binary=:all:"),
            *("--python-version", pythons[0].removeprefix("python")),
            *(word for kind in kinds for word in ("--platform", kind)),
            *("--constraint", str(versions), *wanted),
        ]
    )


def _installed() -> Iterator[str]:
    for package in importlib.metadata.distributions():
        yield f"{package.metadata['Name']}=={package.version}"
