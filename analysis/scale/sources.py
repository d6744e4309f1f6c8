"""Where traces are: a trace or a pack, a folder that holds some below, or a URL of traces."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probes.errors import BadTrace, UsageError
from probes.loss import TABLE as LOSS_TABLE
from tracer.store.packing import SUFFIX, is_pack, open_pack
from tracer.store.trace import ALL_TABLES, Trace

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_MANIFEST = "manifest.json"
_DEEPEST = 4
"""How many folders below the given one a trace may lie."""
_MOST = 100_000
_SPARE_BYTES = 64 << 20
"""What a copy of a trace from elsewhere has to leave free."""


@dataclass(frozen=True)
class Source:
    """One trace. `location` is a path or a URL; `name` tells it from the others, to be shown."""

    location: str
    name: str


def find(locations: Sequence[str]) -> list[Source]:
    """The traces at these locations, in their order, those of a folder by name.

    Raises UsageError where a location holds none, or nothing can open its kind of URL; BadTrace
    where nothing is there.
    """
    found: list[tuple[str, str]] = []
    for location in locations:
        if _is_url(location):
            found += _find_at_url(location)
        else:
            found += _find_in_folder(Path(location))
        if len(found) > _MOST:
            raise UsageError(f"{location} holds more than {_MOST} traces", "name fewer of them")
    names = _names([path for _, path in found])
    return [Source(where, name) for (where, _), name in zip(found, names, strict=True)]


@contextlib.contextmanager
def opened(source: Source) -> Iterator[Trace]:
    """The trace, open. What is at a URL is copied to a folder that is removed afterwards."""
    if not _is_url(source.location):
        path = Path(source.location)
        with open_pack(path) if is_pack(path) else Trace(path) as trace:
            yield trace
        return
    with tempfile.TemporaryDirectory(prefix="tracer-") as name:
        folder = Path(name) / "copy.trace"
        _copy(source.location, folder)
        with Trace(folder) as trace:
            yield trace


def _is_url(location: str) -> bool:
    return "://" in location


def _find_in_folder(folder: Path) -> list[tuple[str, str]]:
    if (folder / _MANIFEST).exists() or not folder.is_dir():
        # A trace, or what opening it will find wrong.
        return [(str(folder), folder.name)]
    found = []
    top = len(folder.parts)
    for at, folders, files in os.walk(folder):
        here = Path(at)
        if _MANIFEST in files:
            found.append((str(here), str(here.relative_to(folder))))
            folders.clear()
            continue
        packs = (here / name for name in sorted(files) if name.endswith(SUFFIX))
        found += [(str(pack), str(pack.relative_to(folder))) for pack in packs]
        if len(here.parts) - top >= _DEEPEST:
            folders.clear()
        folders.sort()
    if not found:
        raise UsageError(f"{folder} holds no trace", "name a folder that `tracer record` made")
    return found


def _find_at_url(url: str) -> list[tuple[str, str]]:
    system, root = _file_system(url)
    protocol = url.partition("://")[0]
    try:
        if system.exists(f"{root}/{_MANIFEST}"):
            return [(url, root.rpartition("/")[2])]
        paths = sorted(system.find(root, maxdepth=_DEEPEST + 1))
    except (OSError, ValueError) as error:
        raise BadTrace(f"{url} cannot be read: {_line(error)}", "see that it can be had") from None
    found = [path.removesuffix(f"/{_MANIFEST}") for path in paths if path.endswith(f"/{_MANIFEST}")]
    if not found:
        raise UsageError(f"{url} holds no trace", "name a folder that `tracer record` made")
    return [(f"{protocol}://{path.lstrip('/')}", path.removeprefix(root)) for path in found]


def _file_system(url: str) -> tuple[AbstractFileSystem, str]:
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        line = _line(error)
        raise UsageError(f"{url} cannot be opened: {line}", "install what it needs") from None
    return system, str(path).rstrip("/")


def _copy(url: str, folder: Path) -> None:
    """The tables of a trace, and nothing else of what lies beside them."""
    system, root = _file_system(url)
    wanted = [_MANIFEST, f"{LOSS_TABLE.name}.parquet"]
    wanted += [f"events/{name}.parquet" for name in ALL_TABLES if name != LOSS_TABLE.name]
    (folder / "events").mkdir(parents=True, mode=0o700)
    try:
        sizes = {
            name: system.size(f"{root}/{name}") or 0
            for name in wanted
            if system.exists(f"{root}/{name}")
        }
        free = shutil.disk_usage(folder).free - _SPARE_BYTES
        if sum(sizes.values()) > free:
            raise UsageError(
                f"{url} has {sum(sizes.values())} bytes of tables, {folder.parent} room for {free}",
                "set TMPDIR to a folder with more",
            )
        for name in sizes:
            system.get_file(f"{root}/{name}", str(folder / name))
    except (OSError, ValueError) as error:
        raise BadTrace(f"{url} cannot be read: {_line(error)}", "see that it can be had") from None


def _names(paths: list[str]) -> list[str]:
    """A name for each that no other has: its folder's, or a number behind it."""
    names: list[str] = []
    seen: dict[str, int] = {}
    for path in paths:
        name = path.strip("/") or "trace"
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def _line(error: Any) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
