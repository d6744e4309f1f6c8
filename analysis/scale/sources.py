"""Locations of traces: a trace, a pack, a folder that contains some, or a URL of one of these."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.analysis.scale import remote
from tracer.probes.errors import BadTrace, PermissionMissing, TracerError, UsageError
from tracer.store.manifest import FILE as MANIFEST
from tracer.store.names import escaped, refuse_empty
from tracer.store.packing import SUFFIX, is_pack, open_pack
from tracer.store.trace import Trace

if TYPE_CHECKING:
    from tracer.store.finalize import Progress

_DEEPEST = 4
"""Most levels of folders below the given one in which traces are searched."""
_MOST = 100_000


@dataclass(frozen=True)
class Source:
    """One trace. `location` is a path or a URL. `name` is unique among the sources, for display."""

    location: str
    name: str

    def absolute(self) -> Source:
        """Returns the source with an absolute path, which does not depend on the current folder."""
        if remote.is_url(self.location):
            return self
        return Source(str(Path(self.location).absolute()), self.name)

    def place(self) -> str:
        """Returns the resolved location, which is equal for all names of the same place."""
        return self.location if remote.is_url(self.location) else str(Path(self.location).resolve())


def find_traces(locations: Sequence[str]) -> list[Source]:
    """Returns the traces at these locations, in their order. Traces of a folder are sorted by name.

    Raises BadTrace if a location contains no trace or cannot be read, UsageError if it is empty or
    its kind of URL is not supported.
    """
    found: list[tuple[str, str]] = []
    for location in locations:
        refuse_empty(location)
        if remote.is_url(location):
            found += remote.list_remote(location, _DEEPEST)
        else:
            found += _find_in_folder(Path(location))
        if len(found) > _MOST:
            raise UsageError(f"{location} holds more than {_MOST} traces", "name fewer traces")
    names = _names([escaped(path) for _, path in found])
    return [Source(where, name) for (where, _), name in zip(found, names, strict=True)]


@contextlib.contextmanager
def opened(source: Source, progress: Progress | None = None) -> Iterator[Trace]:
    """Opens the trace. A trace at a URL is copied to a folder that is removed afterwards.

    Errors inside name the source's location, not that of the copy, which the user does not know.
    """
    with contextlib.ExitStack() as stack:
        if remote.is_url(source.location):
            path = stack.enter_context(remote.copied(source.location))
        else:
            path = Path(source.location)
        places = [path]
        try:
            with open_pack(path) if is_pack(path) else Trace(path, progress) as trace:
                places.insert(0, trace.folder)
                yield trace
        except TracerError as error:
            what, mend = error.what, error.mend
            for place in map(str, places):
                what, mend = (text.replace(place, source.location) for text in (what, mend))
            raise type(error)(what, mend) from error


def naming(source: Source, error: TracerError) -> TracerError:
    """Returns the error of one trace among many, with the trace's location in its text."""
    there = rf"(?<![\w./-]){re.escape(source.location)}(?![\w.-])"
    if re.search(there, error.what):
        return error
    return type(error)(f"{source.location}: {error.what}", error.mend)


def _find_in_folder(folder: Path) -> list[tuple[str, str]]:
    try:
        alone = (folder / MANIFEST).exists() or not folder.is_dir()
    except OSError:
        alone = True
    if alone:  # a trace, or a location whose opening will raise the error
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
            f"{folder} is not a trace and contains none", "name a folder that `tracer record` made"
        )
    return found


def _refuse(error: OSError) -> None:
    """Raises an error for an unreadable folder: it may contain traces, so it is not skipped."""
    said = f"{error.filename} cannot be read: {error.strerror}"
    if isinstance(error, PermissionError):
        raise PermissionMissing(said, "run as its owner, or as root")
    raise BadTrace(said, "make it readable, or name another folder")


def _names(paths: list[str]) -> list[str]:
    """Returns a unique name for each path: the path, with a number appended if it is taken."""
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
