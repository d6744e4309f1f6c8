"""Traces and packs at URLs, by fsspec: found, and copied to be read.

What lies there may be anybody's: names alone are taken from a listing, nothing but the tables of a
trace is copied, and no more than there is room for.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probes.errors import BadTrace, TracerError, UsageError
from probes.loss import TABLE as LOSS_TABLE
from tracer.store.manifest import FILE as MANIFEST
from tracer.store.packing import SUFFIX
from tracer.store.trace import ALL_TABLES

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_SPARE_BYTES = 64 << 20
"""What a copy of a trace from elsewhere has to leave free."""
_MOST_CHARACTERS = 100
_ODD = re.compile(r"[^\w.+-]")


def is_url(location: str) -> bool:
    """Whether a location is a URL, not a path."""
    return "://" in location


def find(url: str, deepest: int) -> list[tuple[str, str]]:
    """URL and name of each trace and pack at a URL, or so many folders below it at most.

    Raises BadTrace where there is none or nothing can be read, UsageError where nothing can open
    such a URL.
    """
    with _reading(url):
        system, root = _file_system(url)
        if root.endswith(SUFFIX) or system.exists(f"{root}/{MANIFEST}"):
            return [(url, root.rpartition("/")[2])]
        paths = sorted(system.find(root, maxdepth=deepest + 1))
        ends = (f"/{MANIFEST}", SUFFIX)
        found = [path.removesuffix(ends[0]) for path in paths if path.endswith(ends)]
        if not found:
            raise BadTrace(
                f"{url} is no trace, and holds none", "name a folder that `tracer record` made"
            )
        return [(system.unstrip_protocol(path), path.removeprefix(root)) for path in found]


@contextlib.contextmanager
def copied(url: str) -> Iterator[Path]:
    """A copy of the trace or the pack at a URL, removed afterwards, called as it is there."""
    with tempfile.TemporaryDirectory(prefix="tracer-") as folder:
        with _reading(url):
            system, root = _file_system(url)
            name = _ODD.sub("_", root.rpartition("/")[2])[-_MOST_CHARACTERS:]
            copy = Path(folder) / (name if name.strip(".") else "copy.trace")
            if root.endswith(SUFFIX):
                _copy(system, url, {root: copy})
            else:
                (copy / "events").mkdir(parents=True, mode=0o700)
                wanted = [MANIFEST, f"{LOSS_TABLE.name}.parquet"]
                wanted += [f"events/{n}.parquet" for n in ALL_TABLES if n != LOSS_TABLE.name]
                there = {f"{root}/{n}": copy / n for n in wanted if system.exists(f"{root}/{n}")}
                _copy(system, url, there)
        yield copy


def _copy(system: AbstractFileSystem, url: str, files: Mapping[str, Path]) -> None:
    size = sum(system.size(path) or 0 for path in files)
    folder = next(iter(files.values())).parent if files else Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free - _SPARE_BYTES
    if size > free:
        raise UsageError(
            f"{url} has {size} bytes of tables, {tempfile.gettempdir()} room for {max(0, free)}",
            "set TMPDIR to a folder with more",
        )
    for path, copy in files.items():
        system.get_file(path, str(copy))


def _file_system(url: str) -> tuple[AbstractFileSystem, str]:
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"{url} cannot be opened: {_line(error)}", "install what it needs"
        ) from None
    return system, str(path).rstrip("/")


@contextlib.contextmanager
def _reading(url: str) -> Iterator[None]:
    """Errors of a file system as BadTrace: each raises those of its own library."""
    try:
        yield
    except TracerError:
        raise
    except Exception as error:  # noqa: BLE001 (botocore's, ftplib's, ... have nothing in common)
        raise BadTrace(f"{url} cannot be read: {_line(error)}", "see that it can be had") from None


def _line(error: Any) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
