"""Reads that count in an epoch before their own, as docs/reads.md (Limits) says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


class LastCalls:
    """The last read of each thread of a recording without calls.

    A read of the end of what its thread's last read asked for counts as that read, from a later
    missing page on: the pages that it misses then belong to the epoch of that read. Drawn jobs
    read another page instead, if the epoch is another one.
    """

    def __init__(self) -> None:
        self._last: dict[Any, tuple[Any, Any, range]] = {}

    def other(
        self, thread: Any, epoch: Any, file: Any, pages: range, missing: Collection[int]
    ) -> range:
        """Returns the pages that a thread reads, mostly those that are given.

        If they would count in the epoch of the last read, that read's first page takes their place.
        """
        if thread in self._last:
            last_epoch, last_file, last = self._last[thread]
            same_end = last_file == file and last.stop == pages.stop
            if epoch != last_epoch and same_end and max(missing, default=-1) > last.start:
                pages = last[:1]
        self._last[thread] = epoch, file, pages
        return pages
