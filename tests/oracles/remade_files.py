"""Jobs that read files which others truncate, or remove and make anew, meanwhile.

It is written from docs/predict.md and docs/reads.md, not from the code of `tracer predict`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tests.oracles.called_jobs import JobCall, removal
from tests.oracles.warm_pages import DATA, SIZES, File, Row, WarmJobs

NAMING = ("add", "delete", "read_ahead", "map")
"""Events that name all of their pages. An access names the first one: it may ask for more than the
file has."""


class RemadeJobs(WarmJobs):
    """A file loses its last pages, or all of them, and is written anew with the same number.

    Nobody reads beyond its end. Its size is that at the end of the recording.
    """

    def __init__(self, seed: int, remakes: float = 0.08, **options: Any) -> None:
        self.remakes = remakes
        self.remade = 0
        """Pages that were in memory before, and that a file has lost."""
        self._size = dict(SIZES)
        super().__init__(seed, **options)
        for row in self.tables["files"]:
            row["size"] = 4096 * self._size[row["dev"], row["ino"]]
        self.sizes = sizes_told(self.tables)
        self.calls = list(as_told(self.calls, self.sizes))

    def _step(self, actor: str) -> None:
        if self.draw.random() < self.remakes:
            self._remake(self.draw.choice(DATA))
        super()._step(actor)

    def _remake(self, file: File) -> None:
        """Truncates a file to some pages or to none, and writes others after them."""
        left = self.draw.choice([0, 0, self._size[file] // 2])
        gone = sorted(page for page in self._cached if page[0] == file and page[1] >= left)
        self.remade += len(self.before - self.came & set(gone))
        for _, index in gone:
            self._event("r", "delete", file, index)
            self.calls.append(removal(file, index, self.now))
        self._cached.difference_update(gone)
        self._size[file] = self.draw.choice([left + 5, SIZES[file] // 2, SIZES[file]])
        written = range(left, min(self._size[file], left + self.draw.randrange(20)))
        self._write(self.draw.choice("abr"), file, written)

    def _write(self, actor: str, file: File, pages: Iterable[int]) -> None:
        super()._write(actor, file, [index for index in pages if index < self._size[file]])

    def _read(self, actor: str, file: File, first: int, pages: int) -> None:
        """Reads pages: those before the end of the file."""
        pages = min(pages, self._size[file] - first)
        if pages > 0:
            super()._read(actor, file, first, pages)


def sizes_told(tables: Mapping[str, list[Row]]) -> dict[File, int]:
    """The pages of each file, as far as its size or an event tells them."""
    found: dict[File, int] = {}
    for row in tables.get("files", []):
        file = row["dev"], row["ino"]
        found[file] = max(found.get(file, 0), -(-row["size"] // 4096))
    for row in tables["page_cache"]:
        file = row["dev"], row["ino"]
        end = row["index"] + (row["pages"] if row["event"] in NAMING else 1)
        found[file] = max(found.get(file, 0), end)
    return found


def as_told(calls: Iterable[JobCall], sizes: Mapping[File, int]) -> Iterable[JobCall]:
    """Yields the calls without pages beyond the end of files."""
    for call in calls:
        yield replace(call, pages=min(call.pages, sizes[call.file] - call.first))
