"""Reads of a disk that are reads of a loop device above it, whose file lies there.

The driver of loop devices reads in threads of the kernel (drivers/block/loop.c, loop_queue_work()),
and reads ahead in the file, so a read of the disk belongs to no single read of the loop device. The
place of a read tells its file (`file_pages`). If it does not, the thread decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.views.disks.volumes import on_devices
from tracer.analysis.views.reading.file_pages import file_pages
from tracer.probes.errors import BadTrace
from tracer.probes.events.block import SECTOR_BYTES
from tracer.store.devices import Devices
from tracer.store.trace import Trace


@dataclass(frozen=True)
class LoopFiles:
    """The files of loop devices."""

    place: str = "false"
    """SQL condition: a bio (dev, sector) is on a file system with such a file."""
    inodes: dict[str, set[int]] = field(default_factory=dict)
    """Their inodes by file system, as file events name it."""


@dataclass(frozen=True)
class LoopReads:
    """Pages below loop devices of which no event tells the file."""

    guessed: int = 0
    """Pages that threads of the kernel read: they count as reads of the loop device."""
    doubtful: int = 0
    """Pages of which the thread is not known, either: they count as other reads."""


def loop_files(trace: Trace, disks: list[str]) -> LoopFiles:
    """Returns the known files of loop devices among these disks, and of those below the disks."""
    devices = Devices(trace.manifest)
    places: list[str] = []
    inodes: dict[str, set[int]] = {}
    for one in devices.carrying(disks):
        if one.ino is None:
            continue
        try:
            places.append(on_devices(trace, [one.name]))
        except BadTrace:
            continue  # a partition whose place is not known
        inodes.setdefault(devices.names(one.name).fs, set()).add(one.ino)
    return LoopFiles(f"({' OR '.join(places)})", inodes) if places else LoopFiles()


def reads_of_loops(
    trace: Trace, rows: pd.DataFrame, files: LoopFiles
) -> tuple[NDArray[np.bool_], LoopReads]:
    """Returns whether each bio reads a loop device's file for that device, and what is guessed.

    `rows`, in order of time: ts, dev, sector, pages, by_kernel (1: a thread of the kernel reads
    data on the place of `files`; -1: a thread that is not known does; 0: other bios).
    """
    found = np.zeros(len(rows), bool)
    by_kernel = rows["by_kernel"].to_numpy(np.int8)
    asked = np.flatnonzero(by_kernel)
    if not len(asked):
        return found, LoopReads()
    places = pd.DataFrame(
        {
            "ts": rows["ts"].to_numpy(np.int64)[asked],
            "dev": rows["dev"].to_numpy()[asked],
            "byte": rows["sector"].to_numpy(np.uint64)[asked] * np.uint64(SECTOR_BYTES),
            "data": True,
        }
    )
    mapped = file_pages(trace, places)
    devices = Devices(trace.manifest)
    theirs = np.array(
        [
            ino in files.inodes.get(devices.names(dev).fs, ())
            for dev, ino in zip(mapped.files["dev"], mapped.files["ino"].tolist(), strict=True)
        ],
        bool,
    )
    known = mapped.file >= 0
    found[asked[known]] = theirs[mapped.file[known]]
    pages = rows["pages"].to_numpy(np.uint64)[asked].astype(np.int64)
    told = by_kernel[asked] > 0
    found[asked[~known & told]] = True
    return found, LoopReads(int(pages[~known & told].sum()), int(pages[~known & ~told].sum()))
