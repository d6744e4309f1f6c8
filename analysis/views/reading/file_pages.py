"""The file of each page of a write bio, and the index of the page in the file.

A bio names sectors. The file system's extent events before the bio (table `extents`) give the file
and the place in it. For blocks without an event in the recording, the map at its end gives both
(`extent_map`). A file is an inode from one freeing of the inode to the next.

No file: metadata and the journal. Not mapped: pages without extents (btrfs, whose files have their
own addresses; a recording without the probe `extents`; files that were deleted before the end and
whose extents were allocated before the beginning).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.views.reading.inode_ends import make_inode_ends
from tracer.probes.compiled import compiled
from tracer.probes.errors import BadTrace
from tracer.store.devices import Devices
from tracer.store.manifest_parts import FileSystem
from tracer.store.trace import Trace

NO_FILE, NOT_MAPPED = -2, -1
_PAGE, _SECTOR = 4096, 512
_FILE = {"dev": str, "ino": np.uint64, "born": np.int64}
_MOST_LOOKS = 1 << 33
"""Most pairs of an extent and a block that it covers; no real recording has more."""

# ext4 numbers blocks consecutively, and block 0 never belongs to a file; xfs starts each allocation
# group at a power of two.
_EXTENTS = """
SELECT e.ts, e.ino, e.file_block, e.disk_block, e.blocks, coalesce(f.n, 0) AS born
FROM (SELECT * FROM extents_rows WHERE dev = ? AND ino IS NOT NULL
    AND disk_block > 0 AND blocks > 0) e
ASOF LEFT JOIN (
    SELECT ino, ts, max(n) AS n FROM inode_ends WHERE ends AND dev = ? GROUP BY ALL
) f ON e.ino = f.ino AND e.ts >= f.ts
ORDER BY e.ts, e.row
"""
_AT_END = """
SELECT ino, file_byte, disk_byte, bytes FROM extent_map
WHERE dev = ? AND ino IS NOT NULL AND bytes > 0
"""


@dataclass(frozen=True)
class FilePages:
    """The file and the place in it of each page.

    file: the number of the file, dense from 0, or NO_FILE or NOT_MAPPED. index: the page in the
    file, and within: the sector of that page, 0 to 7; both are 0 without a file. files: a row per
    file, by its number: dev (MAJOR:MINOR of the file system), ino, and born (how often the inode
    had been freed in the recording before the file).
    """

    file: NDArray[np.int32]
    index: NDArray[np.int64]
    within: NDArray[np.uint8]
    files: pd.DataFrame

    def chosen(self, pages: NDArray[np.bool_]) -> FilePages:
        """Returns the files of some of the pages."""
        return FilePages(self.file[pages], self.index[pages], self.within[pages], self.files)


def file_pages(trace: Trace, pages: pd.DataFrame) -> FilePages:
    """Returns the file of each page that was written back, or of each part of such a page.

    `pages` has a row for each, in order of time: ts (ns), dev (MAJOR:MINOR), byte (the first one
    written, counted on the whole disk), data (False: metadata or journal). Raises BadTrace if
    extents overlap too often.
    """
    files = np.full(len(pages), NOT_MAPPED, np.int32)
    byte = np.zeros(len(pages), np.int64)
    data = pages["data"].to_numpy(bool)
    files[~data] = NO_FILE
    for table in ("extents", "extent_map"):
        trace.empty_if_missing(table)
    make_inode_ends(trace)
    devices = Devices(trace.manifest)
    place = pages["byte"].to_numpy(np.uint64)
    when = pages["ts"].to_numpy(np.int64)
    known = 0
    parts = [pd.DataFrame({"dev": [], "ino": [], "born": []}).astype(_FILE)]
    for system in trace.manifest.get("file_systems", []):
        dev = system["dev"]
        lies = devices.place(dev)
        if lies is None:
            continue
        begin, end = np.uint64(lies.first * _SECTOR), np.uint64(lies.end * _SECTOR)
        # Bios name the disk, extents name the partition.
        named = pages["dev"].isin([dev, lies.disk]).to_numpy(bool)
        of_system = np.flatnonzero(named & data & (place >= begin) & (place < end))
        if not len(of_system):
            continue
        found, bytes_in, inodes = _of_system(
            when[of_system], place[of_system] - begin, *_told(trace, system), system
        )
        files[of_system] = np.where(found >= 0, found + known, found)
        byte[of_system] = bytes_in
        known += len(inodes)
        parts.append(inodes.assign(dev=dev))
    within = (byte % _PAGE // _SECTOR).astype(np.uint8)
    return FilePages(files, byte // _PAGE, within, pd.concat(parts, ignore_index=True))


def _told(trace: Trace, system: FileSystem) -> tuple[pd.DataFrame, pd.DataFrame]:
    told = trace.sql(_EXTENTS, system["dev"], system["dev"])
    return told, trace.sql(_AT_END, system["dev"])


def _of_system(
    when: NDArray[np.int64],
    place: NDArray[np.uint64],
    told: pd.DataFrame,
    at_end: pd.DataFrame,
    system: FileSystem,
) -> tuple[NDArray[np.int32], NDArray[np.int64], pd.DataFrame]:
    """Returns the file of each place, the byte in the file (0 without one), and the files."""
    block, group_blocks = system["block_bytes"], system.get("group_blocks")
    blocks, which = np.unique(place // np.uint64(block), return_inverse=True)
    disk_block = told["disk_block"].to_numpy(np.uint64)
    if group_blocks is not None:
        shift = np.uint64(max(0, (group_blocks - 1).bit_length()))
        disk_block = (disk_block >> shift) * np.uint64(group_blocks) + (
            disk_block & ((np.uint64(1) << shift) - np.uint64(1))
        )
    first, last = _covered(blocks, disk_block, told["blocks"].to_numpy(np.uint64))
    end_first, end_last = _covered(
        blocks,
        at_end["disk_byte"].to_numpy(np.uint64) // np.uint64(block),
        at_end["bytes"].to_numpy(np.uint64) // np.uint64(block),
    )
    looks = (last - first).sum(dtype=np.float64) + (end_last - end_first).sum(dtype=np.float64)
    if looks > _MOST_LOOKS:
        raise BadTrace("the extents of the trace overlap too often", "the trace is damaged")
    named = pd.concat(
        [
            pd.DataFrame({"ino": told["ino"], "born": told["born"]}),
            # The map at the end belongs to the last file with the inode number.
            pd.DataFrame({"ino": at_end["ino"], "born": at_end["ino"].map(_last_born(told))}),
        ]
    ).fillna({"born": 0})
    named = named.astype({"ino": np.uint64, "born": np.int64})
    numbers, lives = pd.factorize(pd.MultiIndex.from_frame(named))
    codes = numbers.astype(np.int32)
    owner, shift_of = _unknown(len(blocks))
    end_blocks = at_end["disk_byte"].to_numpy(np.uint64) // np.uint64(block)
    _take_all(
        owner, shift_of, end_first, end_last, codes[len(told) :],
        _apart(at_end["file_byte"].to_numpy(np.uint64) // np.uint64(block), end_blocks),
    )  # fmt: skip
    _forget(owner, first, last)
    files, shifts = _in_time(
        when, which, owner, shift_of, told["ts"].to_numpy(np.int64), first, last,
        codes[: len(told)], _apart(told["file_block"].to_numpy(np.uint64), disk_block),
    )  # fmt: skip
    byte = (blocks[which].astype(np.int64) + shifts) * block + (
        place % np.uint64(block)
    ).astype(np.int64)  # fmt: skip
    byte = np.where(files >= 0, byte, 0)
    seen, dense = np.unique(files, return_inverse=True)
    below = int((seen < 0).sum())
    inodes = lives.take(seen[below:]).to_frame(index=False).set_axis(["ino", "born"], axis=1)
    return np.where(files >= 0, dense - below, files).astype(np.int32), byte, inodes


def _last_born(told: pd.DataFrame) -> pd.Series[int]:
    return told.groupby("ino")["born"].max()


def _covered(
    blocks: NDArray[np.uint64], begin: NDArray[np.uint64], length: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the range of the sorted `blocks` that each extent covers: first, and after last."""
    room = np.uint64((1 << 64) - 1) - begin
    end = begin + np.minimum(length, room)
    first = np.searchsorted(blocks, begin, "left")
    return first, np.searchsorted(blocks, end, "left")


def _apart(file_block: NDArray[np.uint64], disk_block: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns the number to add to a block's number on the disk to get its number in the file."""
    return (file_block - disk_block).astype(np.int64)


def _unknown(count: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return np.full(count, NOT_MAPPED, np.int32), np.zeros(count, np.int64)


@compiled
def _take_all(owner: Any, shift: Any, first: Any, last: Any, code: Any, apart: Any) -> None:
    for e in range(len(first)):
        for block in range(first[e], last[e]):
            owner[block] = code[e]
            shift[block] = apart[e]


@compiled
def _forget(owner: Any, first: Any, last: Any) -> None:
    # Blocks with an event may have belonged to another file before the event.
    for e in range(len(first)):
        for block in range(first[e], last[e]):
            owner[block] = NOT_MAPPED


@compiled
def _in_time(
    when: Any, which: Any, owner: Any, shift: Any, told: Any, first: Any, last: Any, code: Any,
    apart: Any,
) -> Any:  # fmt: skip
    files = np.empty(len(when), np.int32)
    shifts = np.empty(len(when), np.int64)
    e = 0
    for i in range(len(when)):
        while e < len(told) and told[e] <= when[i]:
            for block in range(first[e], last[e]):
                owner[block] = code[e]
                shift[block] = apart[e]
            e += 1
        files[i] = owner[which[i]]
        shifts[i] = shift[which[i]]
    return files, shifts
