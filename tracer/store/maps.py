"""`maps.jsonl`: what lay where in each target's address space when its recording began.

A line a process (`MapFacts`). A path is written once, and mappings that continue one another are
one: how a page may be used is not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from probes.errors import BadTrace
from tracer.store.checked import parsed, what_is_wrong
from tracer.store.files import open_regular
from tracer.store.lists import MapFacts, MappedFacts

FILE = "maps.jsonl"

MOST_BYTES = 64 << 20
MOST_BYTES_OF_A_PROCESS = 16 << 20
"""JSON of some 350,000 mappings; a process may have 65,530 by default (vm.max_map_count)."""

_MOST_PARTS = 2_500_000
"""The most parts of a process's JSON: five a mapping, and some more for its files."""

SnapshotFacts = tuple[int, int, list[tuple[int, int, int, MappedFacts]]]
"""A process's mappings: (pid, ns, mappings as (start, end, offset in the file, file))."""


class Maps:
    """The snapshots of a trace, read when they are iterated over: one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[SnapshotFacts]:
        """Each process's mappings. Raises BadTrace where the file cannot be read."""
        files: list[MappedFacts] = []
        for pid, ns, more, found in self._lines():
            files += more
            if any(file >= len(files) for *_, file in found):
                raise BadTrace(f"{self._path} names a file that it does not list", "record again")
            yield pid, ns, [(start, end, at, files[file]) for start, end, at, file in found]

    def _lines(self) -> Iterator[MapFacts]:
        left = MOST_BYTES
        try:
            with open_regular(self._path) as file:
                while line := file.readline(MOST_BYTES_OF_A_PROCESS):
                    left -= len(line)
                    if left < 0 or len(line) == MOST_BYTES_OF_A_PROCESS:
                        raise ValueError("too long")
                    if line.endswith(b"\n"):  # else the recorder was killed while it wrote
                        yield parsed(MapFacts, line, _MOST_PARTS)
        except FileNotFoundError:
            return
        except OSError as error:
            raise BadTrace(
                f"{self._path} cannot be read: {error.strerror}", "record again"
            ) from None
        except ValueError as error:
            raise BadTrace(
                f"{self._path} is damaged: {what_is_wrong(error)}", "record again"
            ) from None
