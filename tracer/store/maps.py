"""`maps.jsonl`: each target's memory mappings when the recording began.

One line per process (`MapFacts`). Each path is written once. Adjacent mappings of a file are
joined; their permissions are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tracer.probes.errors import BadTrace
from tracer.store.checked import parsed, what_is_wrong
from tracer.store.files import open_regular
from tracer.store.lists import MapFacts, MappedFacts

FILE = "maps.jsonl"

MOST_BYTES = 64 << 20
MOST_BYTES_OF_A_PROCESS = 16 << 20
"""JSON of about 350,000 mappings; a process may have 65,530 by default (vm.max_map_count)."""

MOST_PARTS_OF_A_PROCESS = 2_500_000
"""Parts of a process's JSON, at most: of each mapping, of each file, and of the line itself."""
PARTS_OF_MAPPING, PARTS_OF_FILE, PARTS_OF_LINE = 5, 6, 6

SnapshotFacts = tuple[int, int, list[tuple[int, int, int, MappedFacts]]]
"""A process's mappings: (pid, ns, mappings as (start, end, offset in the file, file))."""


class Maps:
    """The mappings in a trace, read during iteration, one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[SnapshotFacts]:
        """Yields each process's mappings. Raises BadTrace if the file cannot be read."""
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
                    if line.endswith(b"\n"):  # a killed recorder leaves a partial line
                        yield parsed(MapFacts, line, MOST_PARTS_OF_A_PROCESS)
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
