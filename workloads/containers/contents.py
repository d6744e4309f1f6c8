"""The contents of an image of this machine's own Python: files here, and their paths there.

No registry or mirror is used. The base image has the interpreter with its standard library, the
packages of the jobs with all their requirements, and the system's shared libraries that any of
these is linked against. Our own code, and the packages that serving does not need, are layers on
top.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import IO

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from tracer.workloads.containers.versions import PACKAGES, SOURCE, TRAINING, own_files
from tracer.workloads.errors import MissingFeatureError

LIBRARY = "/opt/traintrace"
"""Folder of the packages and of our own code in the image."""

NOT_DEPLOYED = ("networkx/", "urllib3/")
"""Packages that serving does not need: for graph partitioning and for the HTTP client."""

_ALSO = ("typer", "psutil")
_NOWHERE = ("torch/test/", "torch/bin/test_", "torch/bin/protoc", "torch/include/", "torch/share/")
"""Tests and files for compilers, which no image contains."""
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "tkinter"}
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
_CACHED = re.compile(r"^\s*(?P<soname>\S+) \((?P<abi>[^)]*)\) => (?P<path>/\S+)$", re.MULTILINE)
_FOLDERS = ("tmp", "proc", "sys", "dev", "etc", "output", "data", "marks", "gate")
_FILES = {
    "etc/passwd": "root:x:0:0:root:/:/bin/false\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}


@cache
def python() -> Path:
    """Returns the path of the interpreter itself, not of a virtual environment's link to it."""
    return Path(sys._base_executable).resolve()  # type: ignore[attr-defined]


def write_own(target: IO[bytes], dockerfile: str, kind: str) -> None:
    """Writes the build context that `docker build` needs, as a tar with the files in `own/`."""
    with tarfile.open(fileobj=target, mode="w") as tar:
        _add_text(tar, "Dockerfile", dockerfile)
        for path in own_files(kind):
            _add(tar, path, f"own/{path.relative_to(SOURCE)}")
        if kind == TRAINING:
            for path, inside in _package_files(deployed=False):
                _add(tar, path, f"own/{inside}")


def write_base(target: IO[bytes]) -> None:
    """Writes everything except our own code as a tar. Raises MissingFeatureError."""
    files = _base_files()
    with tarfile.open(fileobj=target, mode="w|") as tar:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for name, text in _FILES.items():
            _add_text(tar, name, text)
        libraries = _Libraries()
        for path, there in files.items():
            _add(tar, path, there)
            libraries.see(path)
        for library, there in libraries.needed():
            _add(tar, library, there)


def base_bytes() -> int:
    """Returns the size of the files of the base image, without the system's shared libraries."""
    return sum(path.stat().st_size for path in _base_files())


def _base_files() -> dict[Path, str]:
    packages = {path: f"{LIBRARY}/{inside}" for path, inside in _package_files(deployed=True)}
    return _interpreter() | packages


def distributions() -> list[metadata.Distribution]:
    """Returns the installed packages of the jobs, with all their requirements, sorted by name."""
    found: dict[str, metadata.Distribution] = {}
    wanted = [*PACKAGES, *_ALSO]
    while wanted:
        name = wanted.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for requirement in found[key].requires or ():
            match = _NAME.match(requirement)
            if match and "extra ==" not in requirement:
                wanted.append(match.group())
    return [found[key] for key in sorted(found)]


def _interpreter() -> dict[Path, str]:
    """Returns the interpreter's files. They keep their paths, which are compiled into it."""
    binary = python()
    found = {binary: str(binary)}
    for key in ("stdlib", "platstdlib"):
        folder = sysconfig.get_path(key, vars={"base": sys.base_prefix})
        for place, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if not _is_left_out(name, place == folder)]
            paths = (Path(place, name) for name in names if name not in _LEFT_OUT)
            found |= {path: str(path) for path in paths if path.is_file()}
    library = sysconfig.get_config_var("INSTSONAME") or ""
    for place in (sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib"):
        if ".so" in library and (path := Path(place or "/", library)).exists():
            found[path] = str(path)
    return found


def _is_left_out(folder: str, at_the_top: bool) -> bool:
    return folder in _LEFT_OUT or (at_the_top and folder.startswith("config-"))


def _package_files(deployed: bool) -> Iterator[tuple[Path, str]]:
    """Yields the package files of every image (`deployed`), or those of the training image only.

    Each comes with its path relative to the library folder.
    """
    for distribution in distributions():
        for file in distribution.files or ():
            inside = PurePosixPath(str(file))
            path = Path(str(distribution.locate_file(file)))
            if ".." in inside.parts or inside.is_absolute() or str(inside).startswith(_NOWHERE):
                continue
            if path.is_file() and deployed != str(inside).startswith(NOT_DEPLOYED):
                yield path, str(inside)


class _Libraries:
    """The shared libraries that files need, found where the dynamic loader would find them."""

    def __init__(self) -> None:
        self._here: set[str] = set()
        self._wanted: set[str] = set()
        self._loaders: set[str] = set()

    def see(self, path: Path) -> None:
        """Adds a file of the image: the name that it provides and the libraries that it needs."""
        self._here.add(path.name)
        if ".so" not in path.name and path != python():
            return
        try:
            with path.open("rb") as file:
                elf = ELFFile(file)
                for segment in elf.iter_segments():
                    if isinstance(segment, DynamicSegment):
                        tags = segment.iter_tags("DT_NEEDED")
                        self._wanted |= {getattr(tag, "needed", "") for tag in tags}
                    elif isinstance(segment, InterpSegment):
                        self._loaders.add(segment.get_interp_name())
        except (ELFError, OSError):
            return  # not loadable, such as a linker script

    def needed(self) -> Iterator[tuple[Path, str]]:
        """Yields the libraries that the image still lacks, with those that they need in turn.

        Each comes with its path in the image, the same as on this machine.
        """
        for loader in sorted(self._loaders):
            yield Path(loader), loader
        cached = _loader_cache()
        done: set[str] = set()
        while waiting := sorted(self._wanted - self._here - done):
            for soname in waiting:
                done.add(soname)
                if (found := cached.get(soname)) is not None:
                    self.see(found.resolve())
                    yield found, str(found)


def _loader_cache() -> dict[str, Path]:
    """Returns path by soname for the libraries of this machine's own binary format."""
    for command in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            said = subprocess.run([command, "-p"], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        found: dict[str, Path] = {}
        for match in _CACHED.finditer(said.stdout):
            path = Path(match["path"])
            if sys.maxsize < 1 << 32 or "64" in match["abi"]:
                found.setdefault(match["soname"], path)
        return found
    raise MissingFeatureError(
        "ldconfig, which locates shared libraries, is not installed",
        "install libc-bin, or name an image with --image",
    )


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o644
    tar.addfile(entry, io.BytesIO(text.encode()))


def _add(tar: tarfile.TarFile, path: Path, there: str) -> None:
    """Adds a regular file with its own modification time.

    Python uses that time to tell whether a compiled file is current, and compares whole seconds.
    The tar has whole seconds, too, since a fraction would take a header of its own.
    """
    with path.open("rb") as file:
        entry = tar.gettarinfo(arcname=there.lstrip("/"), fileobj=file)
        entry.type, entry.linkname = tarfile.REGTYPE, ""  # a second hard link is a file, too
        entry.size = path.stat().st_size
        entry.mtime = int(entry.mtime)
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        tar.addfile(entry, file)
