"""Where traces are: a trace or a pack, a folder that holds some below, or a URL of traces."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.scale import remote
from probes.errors import BadTrace, PermissionMissing, TracerError, UsageError
from tracer.store.manifest import FILE as MANIFEST
from tracer.store.names import escaped
from tracer.store.packing import SUFFIX, is_pack, open_pack
from tracer.store.trace import Trace

if TYPE_CHECKING:
    from tracer.store.finalize import Progress

_DEEPEST = 4
"""How many folders below the given one a trace may lie."""
_MOST = 100_000


@dataclass(frozen=True)
class Source:
    """One trace. `location` is a path or a URL; `name` tells it from the others, to be shown."""

    location: str
    name: str

    def absolute(self) -> Source:
        """The same, wherever the current folder is."""
        if remote.is_url(self.location):
            return self
        return Source(str(Path(self.location).absolute()), self.name)

    def place(self) -> str:
        """What two names of one and the same place have in common."""
        return self.location if remote.is_url(self.location) else str(Path(self.location).resolve())


def find(locations: Sequence[str]) -> list[Source]:
    """The traces at these locations, in their order, those of a folder by name.

    Raises BadTrace where a location holds none or cannot be read, UsageError where nothing can
    open its kind of URL.
    """
    found: list[tuple[str, str]] = []
    for location in locations:
        if remote.is_url(location):
            found += remote.find(location, _DEEPEST)
        else:
            found += _find_in_folder(Path(location))
        if len(found) > _MOST:
            raise UsageError(f"{location} holds more than {_MOST} traces", "name fewer of them")
    names = _names([escaped(path) for _, path in found])
    return [Source(where, name) for (where, _), name in zip(found, names, strict=True)]


@contextlib.contextmanager
def opened(source: Source, progress: Progress | None = None) -> Iterator[Trace]:
    """The trace, open. What is at a URL is copied to a folder that is removed afterwards.

    An error inside tells of the source's location: of a copy nobody has heard.
    """
    with contextlib.ExitStack() as stack:
        if remote.is_url(source.location):
            path = stack.enter_context(remote.copied(source.location))
        else:
            path = Path(source.location)
        places = [path]
        try:
            trace = open_pack(path) if is_pack(path) else Trace(path, progress)
            places.insert(0, trace.folder)
            with trace:
                yield trace
        except TracerError as error:
            what, mend = error.what, error.mend
            for place in map(str, places):
                what, mend = (text.replace(place, source.location) for text in (what, mend))
            raise type(error)(what, mend) from error


def naming(source: Source, error: TracerError) -> TracerError:
    """An error of one trace among many, with the trace's location in it."""
    there = rf"(?<![\w./-]){re.escape(source.location)}(?![\w.-])"
    if re.search(there, error.what):
        return error
    return type(error)(f"{source.location}: {error.what}", error.mend)


def _find_in_folder(folder: Path) -> list[tuple[str, str]]:
    try:
        alone = (folder / MANIFEST).exists() or not folder.is_dir()
    except OSError:
        alone = True
    if alone:  # a trace, or what opening it will find wrong
        return [(str(folder), folder.name)]
    found = []
    top = len(folder.parts)
    for at, folders, files in os.walk(folder, onerror=_refuse):
        here = Path(at)
        if MANIFEST in files:
            found.append((str(here), str(here.relative_to(folder))))
            folders.clear()
            continue
        packs = (here / name for name in sorted(files) if name.endswith(SUFFIX))
        found += [(str(pack), str(pack.relative_to(folder))) for pack in packs]
        if len(here.parts) - top >= _DEEPEST:
            folders.clear()
        folders.sort()
    if not found:
        raise BadTrace(
            f"{folder} is no trace, and holds none", "name a folder that `tracer record` made"
        )
    return found


def _refuse(error: OSError) -> None:
    """A folder that cannot be looked into may hold traces: to pass over it would be a loss."""
    said = f"{error.filename} cannot be read: {error.strerror}"
    if isinstance(error, PermissionError):
        raise PermissionMissing(said, "run as its owner, or as root")
    raise BadTrace(said, "see that it can be read")


def _names(paths: list[str]) -> list[str]:
    """A name for each that no other has: its folder's, or a number behind it."""
    names: list[str] = []
    taken: set[str] = set()
    for path in paths:
        plain = path.strip("/") or "trace"
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain} ({number})"
        taken.add(name)
        names.append(name)
    return names
