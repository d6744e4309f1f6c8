"""A folder with a minimal Debian, and a wheel that is installed in it.

Commands run in it by chroot, in a mount namespace of their own: the mounts vanish with the command,
however it ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.packaging.errors import CannotPackage, ran

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
ENVIRONMENT = "/opt/tracer"
"""The virtual environment of the tracer in the tree."""
PATH = f"{ENVIRONMENT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES = ("python3", "python3-venv", "ca-certificates")
_WHEELS = "wheels"
_ENTER = """
mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" &&
exec chroot "$0" "$@"
"""


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Tree:
    """A folder with a Debian."""

    folder: Path

    def run(self, *command: str, folder: str = "/root") -> Ran:
        """Runs a command in a folder of the tree, which has the machine's /sys and /dev."""
        inside = [
            *("/usr/bin/env", "-i", "-C", folder, f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8"),
            *command,
        ]
        unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER]
        done = subprocess.run(
            [*unshare, str(self.folder), *inside], capture_output=True, text=True, check=False
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def has_run(self, *command: str) -> str:
        """Runs a command and returns its output. Raises CannotPackage if it fails."""
        done = self.run(*command)
        if done.status:
            raise CannotPackage(f"{' '.join(command)} failed in {SUITE}: {done.err[-1500:]}")
        return done.out


def debian(cache: Path, also: Sequence[str] = ()) -> Path:
    """Returns a folder with Debian, Python and the packages `also`, made once.

    Raises CannotPackage without root or debootstrap.
    """
    if os.geteuid():
        raise CannotPackage("a Debian tree is made and entered by root only; use sudo")
    if shutil.which("debootstrap") is None:
        raise CannotPackage("there is no debootstrap; apt-get install debootstrap")
    folder = cache / "-".join((SUITE, *sorted(also)))
    done = folder.with_suffix(".done")
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        packages = ",".join((*_PACKAGES, *also))
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", SUITE]
        ran([*command, folder, MIRROR])
        for unused in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(folder / unused)
            (folder / unused / "partial").mkdir(parents=True)
        done.touch()
    return folder


def installed(base: Path, into: Path, wheel: Path, extras: Sequence[str] = ()) -> Tree:
    """Copies a Debian and installs a wheel there, in an environment that was empty before.

    The machine's pip downloads the dependencies, so that its index and certificates count. Raises
    CannotPackage.
    """
    ran(["cp", "--archive", "--reflink=auto", base, into])
    tree = Tree(into)
    wheels = into / _WHEELS
    version = tree.has_run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    wanted = f"[{','.join(extras)}]" if extras else ""
    ran(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", wheels),
            *("--only-binary=:all:", "--implementation", "cp", "--python-version", version.strip()),
            f"{wheel}{wanted}",
        ]
    )
    tree.has_run("python3", "-m", "venv", ENVIRONMENT)
    tree.has_run(
        *(f"{ENVIRONMENT}/bin/pip", "install", "--quiet", "--no-index"),
        *("--find-links", f"/{_WHEELS}", f"/{_WHEELS}/{wheel.name}{wanted}"),
    )
    shutil.rmtree(wheels)
    return tree
