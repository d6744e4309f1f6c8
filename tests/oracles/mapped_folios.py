"""Jobs that map a file whose folios are larger than the windows around faults.

It is written from docs/predict.md and docs/reads.md (Limits), not from the code of `tracer
predict`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.oracles.two_lists import FAULT
from tests.oracles.warm_pages import LIBRARY, SIZES, WINDOW, File, Page, WarmJobs


class FolioJobs(WarmJobs):
    """The first target touches a mapped file. The kernel maps the rest of folios, too.

    `whole`: it does so for the folios of which a window around a fault has a part. `written`: it
    does so for a folio that a fault makes dirty. No event names these pages.

    The pages of the file that were in memory before are the last ones. The others come in folios
    of up to 32 pages, as they were read.
    """

    folio_sizes = (32, 16, 8, 4, 2, 1)

    def __init__(self, seed: int, whole: bool = True, written: bool = True, **options: Any) -> None:
        self.whole, self.written = whole, written
        self._known: dict[Page, tuple[int, int]] = {}
        """The folio with which an event has brought a page in: its first page, and its pages.

        If a part of it is taken out, the rest counts as a folio.
        """
        self.rest = 0
        """Pages that count as mapped, and that no event of the fault names."""
        self._really: set[Page] = set()
        """Pages in the page table, whether or not an event tells it."""
        super().__init__(seed, library="around", folios=True, **options)
        self.tables.setdefault("dirty", [])

    def _drawn(self, warm: float) -> Iterator[Page]:
        yield from (page for page in super()._drawn(warm) if page[0] != LIBRARY)
        yield from ((LIBRARY, index) for index in range(self.draw.choice([32, 37, 50]), 60))

    def _event(self, actor: str, event: str, file: File, index: int, pages: int = 1, **more: Any):
        super()._event(actor, event, file, index, pages, **more)
        if event == "add" and file == LIBRARY:
            self._known.update({(file, at): (index, pages) for at in range(index, index + pages)})

    def _step(self, actor: str) -> None:
        """A call, and perhaps a read of all of the library, which makes large folios."""
        if actor == "b" and self.draw.random() < 0.1:
            self._read(actor, LIBRARY, 0, SIZES[LIBRARY])
        super()._step(actor)

    def _touch(self, touched: int) -> None:
        page = LIBRARY, touched
        if page in self._really:
            return
        whole = page not in self._known or self._known[page] == self._folio[page]
        if page in self._cached and whole and self.draw.random() < 0.4:
            self._write_to(page)
            return
        super()._touch(touched)
        self._really |= self._mapped | {page}

    def _map(self, touched: int) -> list[Page]:
        """Maps pages around a touched one: some of a window, where a mapping begins or ends.

        Returns those that count as mapped.
        """
        aligned = touched - touched % WINDOW
        first = self.draw.choice([aligned, aligned, self.draw.randrange(aligned, touched + 1)])
        end = self.draw.choice([aligned + WINDOW, self.draw.randint(touched + 1, aligned + WINDOW)])
        window = range(first, min(end, SIZES[LIBRARY]))
        there = {(LIBRARY, index) for index in window if (LIBRARY, index) in self._cached}
        if there:
            self._event("a", "map", LIBRARY, window.start, len(window))
        named = len(there)
        for page in sorted(there) if self.whole else ():
            folio = self._known.get(page)
            if folio and sum(folio) < SIZES[LIBRARY]:
                there |= {other for other, its in self._known.items() if its == folio}
        self.rest += len(there) - named
        return sorted(there)

    def _write_to(self, page: Page) -> None:
        """A fault writes to a cached page through a shared mapping."""
        self._event("a", "fault", *page)
        self._call("a", FAULT, *page, 1, self.now)
        begin, size = self._folio.get(page, (page[1], 1))
        others = {(LIBRARY, index) for index in range(begin, begin + size)} - {page}
        clean = self.draw.random() < 0.8
        self._mapped.add(page)
        if clean:
            row = {"ts": self.now + 1, "pid": 100, "tid": 100, "cpu": 0, "event": "dirty_folio"}
            row |= {"dev": LIBRARY[0], "ino": LIBRARY[1], "index": begin}
            self.tables.setdefault("dirty", []).append(row)
            self.now += 2
        if clean and self.written and not others & self._really and others <= self._known.keys():
            self.rest += len(others)
            for other in sorted(others):
                self._call("a", FAULT, *other, 1, self.now)
            self._mapped |= others
        if self.written and not others & self._really:
            self._really |= others
        self._really.add(page)

    def _take_some(self, file: File) -> None:
        super()._take_some(file)
        self._known = {page: its for page, its in self._known.items() if page in self._cached}
        self._really &= self._cached

    @property
    def kernel(self) -> dict[str, bool]:
        """The features of the kernel that the recorder tried, as the manifest has them."""
        return {"maps_folios": self.whole, "maps_written_folios": self.written}
