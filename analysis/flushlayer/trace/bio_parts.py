"""The parts of bios: each lies in one page of the device and in one block of the file system.

A file's page may begin inside a page of the device, if the blocks are smaller than a page or the
file system begins between two pages. A page of the device then has parts of two pages of files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.trace.page_count import BYTES_A_PAGE, check_pages
from tracer.analysis.views.reading.file_pages import FilePages
from tracer.analysis.views.writing.submissions import SECTORS_PER_PAGE
from tracer.probes.events.block import SECTOR_BYTES
from tracer.store.devices import Devices
from tracer.store.trace import Trace


@dataclass(frozen=True)
class BioParts:
    """Parts of bios, in the order of the bios and of their sectors; arrays of one length.

    bio (its number), ahead (sectors of the bio before the part), sectors (length), page (of 4096
    bytes, on the bio's device).
    """

    bio: NDArray[np.int64]
    ahead: NDArray[np.int64]
    sectors: NDArray[np.int64]
    page: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.bio)

    def chosen(self, parts: NDArray[np.bool_]) -> BioParts:
        """Returns some of the parts."""
        return BioParts(self.bio[parts], self.ahead[parts], self.sectors[parts], self.page[parts])

    def begin_pages(self, found: FilePages) -> NDArray[np.bool_]:
        """Returns whether each part is the first of its bio in a page of its file.

        `found`: the file of each part. The page of a part without a file is that of the device. A
        part that does not lie behind the part before it in the file's page begins the page again.
        """
        begins = np.ones(len(self), bool)
        file, index, within = found.file, found.index, found.within.astype(np.int64)
        in_file = (index[1:] == index[:-1]) & (within[1:] >= within[:-1] + self.sectors[:-1])
        same = np.where(file[1:] >= 0, in_file, self.page[1:] == self.page[:-1])
        begins[1:] = ~(same & (file[1:] == file[:-1]) & (self.bio[1:] == self.bio[:-1]))
        return begins


@dataclass(frozen=True)
class PageBegins:
    """The begin of each page access: arrays of one length.

    ahead: sectors of the bio before the access; within: sectors of the page before the access.
    """

    ahead: NDArray[np.int32]
    within: NDArray[np.uint8]

    def chosen(self, accesses: NDArray[np.bool_]) -> PageBegins:
        """Returns the begins of some of the accesses."""
        return PageBegins(self.ahead[accesses], self.within[accesses])


def bio_parts(
    sector: NDArray[np.uint64], length: NDArray[np.int64], size: NDArray[np.int64]
) -> BioParts:
    """Returns the parts of bios by their first sectors, lengths and the `size` of their parts.

    `size`: see `part_sectors`. A bio without sectors has no part.
    """
    inside = (sector % size.astype(np.uint64)).astype(np.int64)
    counts = np.where(length > 0, (inside + length - 1) // size + 1, 0)
    bio = np.repeat(np.arange(len(sector)), counts)
    stop = np.arange(1, len(bio) + 1) - np.repeat(np.cumsum(counts) - counts, counts)
    stop *= size[bio]
    stop -= inside[bio]
    ahead = np.maximum(stop - size[bio], 0)
    lengths = np.minimum(stop, length[bio]) - ahead
    within = (sector % np.uint64(SECTORS_PER_PAGE)).astype(np.int64)[bio]
    pages = (sector // np.uint64(SECTORS_PER_PAGE))[bio]
    pages += ((within + ahead) // SECTORS_PER_PAGE).astype(np.uint64)
    return BioParts(bio, ahead, lengths, pages)


def part_sectors(
    trace: Trace,
    sector: NDArray[np.uint64],
    upper_dev: NDArray[Any],
    upper_sector: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """Returns the sectors of a part of each bio: 8, 4, 2 or 1.

    Parts begin at multiples of this number. `sector`: the bio's first sector on its device;
    `upper_dev`, `upper_sector`: its place on the uppermost device, where the file system is. A bio
    outside of all known file systems has parts of 8 sectors, a page.
    """
    devices = Devices(trace.manifest)
    apart = ((upper_sector - sector) % np.uint64(SECTORS_PER_PAGE)).astype(np.int64)
    found = np.full(len(sector), SECTORS_PER_PAGE, np.int64)
    for system in trace.manifest.get("file_systems", []):
        lies = devices.place(system["dev"])
        if lies is None:
            continue
        # The lowest bit that is set divides them all.
        known = SECTORS_PER_PAGE * SECTOR_BYTES | lies.first * SECTOR_BYTES | system["block_bytes"]
        sectors = max(1, (known & -known) // SECTOR_BYTES)
        if sectors == SECTORS_PER_PAGE and not apart.any():
            continue
        named = (upper_dev == system["dev"]) | (upper_dev == lies.disk)
        inside = (upper_sector >= np.uint64(lies.first)) & (upper_sector < np.uint64(lies.end))
        there = np.flatnonzero(named & inside)
        both = apart[there] | sectors
        found[there] = np.minimum(found[there], both & -both)
    return found


def check_parts(trace: Trace, pages: NDArray[np.int64], size: NDArray[np.int64]) -> None:
    """Checks that the parts of bios fit in memory; raises the errors of `check_pages`.

    `pages`: the pages of the device that each bio touches; `size`: see `part_sectors`.
    """
    if (size < SECTORS_PER_PAGE).any():
        parts = int((pages * (SECTORS_PER_PAGE // size)).sum())
        check_pages(trace, pages, BYTES_A_PAGE * parts // max(1, int(pages.sum())))


def page_begins(parts: BioParts, found: FilePages, sector: NDArray[np.uint64]) -> PageBegins | None:
    """Returns the begins of pages; None: each page begins where a page of the device does.

    `parts`: the first part of each page; `found`: its file; `sector`: each bio's first sector.
    """
    inside = (sector % np.uint64(SECTORS_PER_PAGE)).astype(np.int64)[parts.bio]
    inside = (inside + parts.ahead) % SECTORS_PER_PAGE
    within = np.where(found.file >= 0, found.within, inside)
    if ((within == inside) & ((inside == 0) | (parts.ahead == 0))).all():
        return None
    return PageBegins(parts.ahead.astype(np.int32), within.astype(np.uint8))
