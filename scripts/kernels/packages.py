"""Debian's packages: found, downloaded and unpacked by a private apt configuration.

Nothing is installed, and the machine's own package lists stay as they are.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from scripts.kernels.errors import CannotTest

MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_TOOLS = ("apt-get", "apt-cache", "dpkg-deb", "tar")


class Packages:
    """A suite's packages of an architecture."""

    def __init__(self, folder: Path, suite: str, architecture: str) -> None:
        """Gets the lists of packages into `folder`. Raises CannotTest."""
        for tool in _TOOLS:
            if shutil.which(tool) is None:
                raise CannotTest(f"there is no {tool}: kernels come from Debian's packages")
        if not KEYRING.exists():
            raise CannotTest(f"{KEYRING} is missing: apt-get install debian-archive-keyring")
        self._folder = folder
        self._archives = folder / "cache/archives"
        for name in (folder / "lists/partial", self._archives / "partial"):
            name.mkdir(parents=True, exist_ok=True)
        source = folder / "sources.list"
        source.write_text(f"deb [arch={architecture} signed-by={KEYRING}] {MIRROR} {suite} main\n")
        settings = {
            "Dir::Etc::sourcelist": source,
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": folder / "cache",
            "Acquire::Languages": "none",
            # Another user could not write to these folders.
            "APT::Sandbox::User": "",
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
        }
        self._options = [
            word for name, value in settings.items() for word in ("-o", f"{name}={value}")
        ]
        self._get("update")

    def dependencies(self, package: str) -> list[str]:
        """Returns the names of a package's dependencies; the first of several alternatives."""
        told = ran(["apt-cache", *self._options, "show", "--no-all-versions", package])
        start = "Depends: "
        line = next((line for line in told.splitlines() if line.startswith(start)), start)
        return [part.split()[0] for part in line.removeprefix(start).split(",") if part.strip()]

    def unpack(self, names: Iterable[str], root: Path) -> None:
        """Downloads packages and unpacks them into `root`, whose links to folders stay."""
        self._empty()
        self._get("download", *sorted(names))
        self._unpack(root)

    def unpack_all(self, names: Iterable[str], root: Path) -> None:
        """Does the same with packages and all that they depend on."""
        self._empty()
        self._get("install", "--yes", "--no-install-recommends", "--download-only", *sorted(names))
        self._unpack(root)

    def _get(self, *words: str) -> None:
        ran(["apt-get", *self._options, "--quiet=2", *words], self._archives)

    def _empty(self) -> None:
        for package in self._archives.glob("*.deb"):
            package.unlink()

    def _unpack(self, root: Path) -> None:
        for package in sorted(self._archives.glob("*.deb")):
            contents = package.with_suffix(".tar")
            with contents.open("wb") as file:
                ran(["dpkg-deb", "--fsys-tarfile", str(package)], output=file.fileno())
            ran(["tar", "--keep-directory-symlink", "-xf", str(contents), "-C", str(root)])
            contents.unlink()
            package.unlink()


def ran(command: list[str], folder: Path | None = None, output: int = subprocess.PIPE) -> str:
    """Returns the output of a command, unless it goes elsewhere. Raises CannotTest if it fails."""
    done = subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, cwd=folder
    )
    if done.returncode:
        raise CannotTest(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout or ""
