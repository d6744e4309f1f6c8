"""The sdist and the wheel: built from the files that git knows, and compared with them."""

from __future__ import annotations

import shutil
import sys
import tarfile
import venv
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scripts.packaging.errors import CannotPackage, ran

PACKAGE = "tracer"
_ALSO = {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}
_MADE = ("PKG-INFO", "setup.cfg", "traintrace.egg-info/")
"""Parts of an sdist that the build writes."""


@dataclass(frozen=True)
class Built:
    """Paths of an sdist and of the wheel that was built from it."""

    sdist: Path
    wheel: Path


def build(root: Path, cache: Path, into: Path) -> Built:
    """Builds the sdist and the wheel of a checkout, and checks their files.

    Both are built from a copy of the files that git knows, since old files in `build/` would get
    into the wheel. Raises CannotPackage if the sdist or the wheel lacks a file, has another one, or
    if a wheel that is built without the sdist differs.
    """
    tool = _tool(cache)
    source = into / "source"
    for name in _tracked(root):
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy, follow_symlinks=False)
    ran([tool, "-m", "build", "--outdir", into / "dist", source])
    shutil.rmtree(source / "build", ignore_errors=True)
    ran([tool, "-m", "build", "--wheel", "--outdir", into / "direct", source])
    [sdist], [wheel] = (into / "dist").glob("*.tar.gz"), (into / "dist").glob("*.whl")
    [direct] = (into / "direct").glob("*.whl")
    package = contents_of(root)
    also = {name: (root / name).read_bytes() for name in _ALSO}
    compare("the sdist", _in_sdist(sdist), package | also)
    compare("the wheel", _in_wheel(wheel), package)
    if _read_wheel(wheel) != _read_wheel(direct):
        raise CannotPackage("the wheel built from the sdist differs from one of the checkout")
    return Built(sdist, wheel)


def contents_of(root: Path) -> dict[str, bytes]:
    """Returns the files of the package that git knows, with their contents.

    `tracer/` has links to the folders beside it; a distribution has the folders in their place.
    """
    found = {}
    for name in _tracked(root):
        if not name.startswith(f"{PACKAGE}/"):
            continue
        path = root / name
        if not path.is_symlink():
            found[name] = path.read_bytes()
            continue
        folder = path.resolve().relative_to(root.resolve())
        for linked in _tracked(root, f"{folder}/"):
            within = Path(linked).relative_to(folder)
            found[f"{name}/{within}"] = (root / linked).read_bytes()
    return found


def _tracked(root: Path, *patterns: str) -> list[str]:
    listed = ran(["git", "ls-files", "-z", *patterns], root).split("\0")
    return [name for name in listed if name and (root / name).exists()]


def _tool(cache: Path) -> Path:
    """Returns a Python with the package `build`, in an environment of its own."""
    folder = cache / "tools"
    python = folder / "bin/python"
    if not (folder / "installed").exists():
        if sys.prefix == str(folder):
            raise CannotPackage(f"{folder} is incomplete; remove it")
        venv.create(folder, with_pip=True, clear=True)
        ran([python, "-m", "pip", "install", "--quiet", "build"])
        (folder / "installed").touch()
    return python


def _read_wheel(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as wheel:
        _once(path.name, wheel.namelist())
        return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}


def _in_wheel(path: Path) -> dict[str, bytes]:
    return {n: c for n, c in _read_wheel(path).items() if ".dist-info/" not in n}


def _in_sdist(path: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(path) as sdist:
        members = [member for member in sdist.getmembers() if not member.isdir()]
        _once(path.name, (member.name for member in members))
        for member in members:
            name = member.name.partition("/")[2]
            content = sdist.extractfile(member)
            if content is None or not member.isfile():
                raise CannotPackage(f"{path.name} has a link: {name}")
            if not name.startswith(_MADE):
                found[name] = content.read()
    return found


def _once(name: str, files: Iterable[str]) -> None:
    twice = [file for file, number in Counter(files).items() if number > 1]
    if twice:
        raise CannotPackage(f"{name} has files twice: {', '.join(twice[:5])}")


def compare(name: str, found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Raises CannotPackage if the names or contents of files differ."""
    differing = [file for file in found.keys() & expected.keys() if found[file] != expected[file]]
    for said, files in (
        ("lacks", expected.keys() - found.keys()),
        ("has files that git does not know", found.keys() - expected.keys()),
        ("has other contents of", differing),
    ):
        if files:
            some = ", ".join(sorted(files)[:5])
            raise CannotPackage(f"{name} {said}: {some} ({len(files)} files)")
