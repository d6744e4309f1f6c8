"""Requests and bytes of whole disks, from /proc/diskstats."""

from __future__ import annotations

import os
from pathlib import Path

from tracer.probes.sampler.reading import (
    ROOT,
    NotAvailable,
    Rate,
    Reader,
    Reading,
    Series,
    contents,
)

_SECTOR = 512
_MOST_DISKS = 256
READS = Series(
    "disk_reads",
    "requests",
    "reads completed since boot",
    Rate("read_iops", "requests/s", "reads completed per second"),
)
READ = Series(
    "disk_read_bytes",
    "bytes",
    "bytes read since boot",
    Rate("read_throughput", "bytes/s", "bytes read per second"),
)
WRITES = Series(
    "disk_writes",
    "requests",
    "writes completed since boot",
    Rate("write_iops", "requests/s", "writes completed per second"),
)
WRITTEN = Series(
    "disk_written_bytes",
    "bytes",
    "bytes written since boot",
    Rate("write_throughput", "bytes/s", "bytes written per second"),
)
BUSY = Series(
    "disk_busy_time",
    "s",
    "time with a request in flight",
    Rate("disk_use", "%", "share of the time with a request in flight", 100),
)
_FIELDS = (
    (READS, 3, 1),
    (READ, 5, _SECTOR),
    (WRITES, 7, 1),
    (WRITTEN, 9, _SECTOR),
    (BUSY, 12, 1e-3),
)
"""Series, word of the line, factor (kernel: Documentation/admin-guide/iostats.rst)."""


class Disks(Reader):
    """A reader of every whole disk that was ever used, without partitions."""

    name = "disks"
    series = tuple(series for series, _, _ in _FIELDS)

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        self.read()

    def read(self) -> list[Reading]:
        """Returns the counters since boot; instance: the disk's name."""
        path = self.root / "proc/diskstats"
        try:
            whole = set(os.listdir(self.root / "sys/block"))
        except OSError:
            raise NotAvailable("/sys/block cannot be listed") from None
        found: list[Reading] = []
        disks = 0
        for line in contents(path).splitlines():
            words = line.split()
            if len(words) < 13 or words[2] not in whole or not any(map(_counts, words[3:13])):
                continue
            disks += 1
            if disks > _MOST_DISKS:
                self.missing["disks"] = f"only the first {_MOST_DISKS} disks were sampled"
                break
            for series, word, factor in _FIELDS:
                found.append((series.name, words[2], int(words[word]) * factor))
        return found


def _counts(word: str) -> bool:
    if not word.isdecimal():
        raise NotAvailable(f"/proc/diskstats has {word[:40]!r} in place of a number")
    return word != "0"
