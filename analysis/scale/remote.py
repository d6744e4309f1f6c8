"""Traces and packs at URLs, by fsspec: finding them, and copying them to be read.

The content of a URL is untrusted. Only names are taken from a listing, and the number of entries is
limited. Only the tables of a trace are copied, at most as many bytes of a file as its stated size,
and at most as many as fit on the disk.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.free_space import room_bytes
from tracer.probes.errors import BadTrace, TracerError, UsageError
from tracer.probes.loss import TABLE as LOSS_TABLE
from tracer.store.files import create
from tracer.store.manifest import FILE as MANIFEST
from tracer.store.packing import SUFFIX
from tracer.store.trace import ALL_TABLES

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

MOST_BYTES = 1 << 40
"""Most bytes that are copied of a trace or a pack, even if there is more room."""
_MOST_ENTRIES = 100_000
_AT_ONCE = 8 << 20
_MOST_ANSWER = 64 << 20
"""Most bytes of an HTTP answer that is read as a whole (a listing)."""
_HTTP = ("http", "https")
_OURS = ("fsspec", "aiohttp")
"""Packages of the extra `remote`. Other kinds of URL need packages of their own."""
_MOST_CHARACTERS = 100
_ODD = re.compile(r"[^\w.+-]")


def is_url(location: str) -> bool:
    """Returns whether a location is a URL, not a path."""
    return "://" in location


def list_remote(url: str, deepest: int) -> list[tuple[str, str]]:
    """Returns URL and name of each trace and pack at a URL, or at most `deepest` folders below it.

    Raises BadTrace if there is none or the URL cannot be read, UsageError if this kind of URL is
    not supported.
    """
    with _reading(url):
        system, root = _file_system(url)
        if root.endswith(SUFFIX) or system.exists(f"{root}/{MANIFEST}"):
            return [(url, root.rpartition("/")[2])]
        paths = _listed(system, url, root, deepest)
        ends = (f"/{MANIFEST}", SUFFIX)
        found = [path.removesuffix(ends[0]) for path in paths if path.endswith(ends)]
        if not found:
            raise BadTrace(
                f"{url} is not a trace and contains none", "name a folder that `tracer record` made"
            )
        return [(system.unstrip_protocol(path), path.removeprefix(root)) for path in found]


def _listed(system: AbstractFileSystem, url: str, root: str, deepest: int) -> list[str]:
    """Returns the files below a folder, sorted by name."""
    paths: list[str] = []
    entries = 0
    for folder, folders, files in system.walk(root, maxdepth=deepest + 1, on_error=_refuse):
        entries += len(folders) + len(files)
        if entries > _MOST_ENTRIES:
            raise UsageError(
                f"{url} holds more than {_MOST_ENTRIES} files and folders",
                "name one of its folders",
            )
        paths += [f"{folder.rstrip('/')}/{name}" for name in files if name]
    return sorted(paths)


def _refuse(error: OSError) -> None:
    """Raises the error of an unreadable folder: it may contain traces, so it is not skipped."""
    if not isinstance(error, FileNotFoundError):
        raise error


@contextlib.contextmanager
def copied(url: str) -> Iterator[Path]:
    """Copies the trace or the pack at a URL under its own name. The copy is removed afterwards."""
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
    sizes = {path: system.size(path) for path in files}
    folder = next(iter(files.values())).parent if files else Path(tempfile.gettempdir())
    room = min(room_bytes(folder), MOST_BYTES)
    size = sum(known or 0 for known in sizes.values())
    if size > room:
        raise _no_room(url, size, room)
    for path, copy in files.items():
        known = sizes[path]
        copied = 0
        with system.open(path, "rb") as source, create(copy) as out:
            while data := source.read(_AT_ONCE):
                copied += len(data)
                if known is not None and copied > known:
                    raise BadTrace(
                        f"{url}: {copy.name} is longer than the {known} bytes that the server"
                        " stated",
                        "check the server",
                    )
                if copied > room:
                    raise _no_room(url, copied, room)
                out.write(data)
        room -= copied


def _no_room(url: str, size: int, room: int) -> UsageError:
    return UsageError(
        f"{url} has at least {size} bytes of tables, but {tempfile.gettempdir()} has room for"
        f" {room} bytes",
        "set TMPDIR to a folder with more room",
    )


def _file_system(url: str) -> tuple[AbstractFileSystem, str]:
    if "::" in url:
        raise UsageError(f"{url} contains another URL", "name one URL, without ::")
    try:
        import fsspec

        options: dict[str, Any] = {}
        if url.partition("://")[0] in _HTTP:
            options = {
                "client_kwargs": {"response_class": _bounded_answer()},
                "headers": {"Accept-Encoding": "identity"},  # the stated size is uncompressed
                "block_size": 0,  # one stream: a server could lengthen each of several pieces
            }
        system, path = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        ours = isinstance(error, ModuleNotFoundError) and error.name in _OURS
        raise UsageError(
            f"{url} cannot be opened: {_line(error)}",
            "pip install 'traintrace[remote]'" if ours else "install the package that it needs",
        ) from None
    return system, str(path).rstrip("/")


def _bounded_answer() -> Any:
    """Returns aiohttp's response class with a limit on the length of an answer."""
    import aiohttp

    class Answer(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            """Returns the whole body. Raises ValueError if it is too long."""
            parts, size = [], 0
            async for part in self.content.iter_any():
                size += len(part)
                if size > _MOST_ANSWER:
                    raise ValueError(f"its answer is longer than {_MOST_ANSWER} bytes")
                parts.append(part)
            self._body = b"".join(parts)
            return self._body

    return Answer


@contextlib.contextmanager
def _reading(url: str) -> Iterator[None]:
    """Turns the errors of a file system's library into BadTrace."""
    try:
        yield
    except TracerError:
        raise
    except Exception as error:  # noqa: BLE001 (botocore's, ftplib's, ... have nothing in common)
        raise BadTrace(f"{url} cannot be read: {_line(error)}", "check the URL") from None


def _line(error: Any) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
