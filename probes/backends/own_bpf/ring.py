"""One CPU's ring of records, as a source of the drain."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tracer.probes.backends import chunks
from tracer.probes.backends.drain import new_file, write_all
from tracer.probes.backends.own_bpf.programs import CLAIMED, LOST, TAKEN
from tracer.probes.backends.own_bpf.records import (
    BLOCK,
    SAMPLES,
    complete_records,
)

_LOOK_NS = 50_000_000
"""Interval in ns between reads of the count of lost records: the time resolution of losses."""
_PATIENCE_NS = 100_000_000
"""Time in ns for which the end of a recording awaits a record that is being written."""
_MOST_BYTES = 8 << 20
"""Most bytes of a chunk, whole blocks."""
assert _MOST_BYTES % BLOCK == 0


class RecordRing:
    """One ring and the file that its records are copied to; a `Source` of the drain.

    What was copied is cleared before it is given back to the programs, because a record's first
    word has to be 0 until the record is complete.
    """

    def __init__(
        self,
        cpu: int,
        path: Path,
        ring: mmap.mmap,
        state: Any,
        wakes: int,
        missed: Callable[[], int],
    ) -> None:
        """Makes the file. `ring` is mapped for this source alone, which does not close it.

        `state` are the words (u64) of the CPU's state. `wakes` is an fd that becomes readable as
        the ring fills; the source does not close it. `missed` returns the events so far that the
        kernel ran no program for, as far as this source has to tell them.
        """
        self.cpu = cpu
        self.path = path
        self.wakes = wakes
        self.written = 0
        self._bytes = np.frombuffer(ring, np.uint8)
        self._words = self._bytes.view(np.uint64)
        self._state = state
        self._missed = missed
        self._lost_before = 0
        self._looked = self._start = time.monotonic_ns()
        self._order = threading.Lock()
        self._order.acquire()
        complete_records(self._words, 0, 0)  # compiles it before the recording
        self.sink = new_file(path)

    @property
    def capacity(self) -> int:
        """Bytes that the ring holds."""
        return len(self._bytes)

    def move(self) -> int:
        """Moves all complete records before the first incomplete one; returns the bytes moved."""
        now = time.monotonic_ns()
        begin, claimed = self._word(TAKEN), self._word(CLAIMED)
        limit = min(claimed, (begin + _MOST_BYTES) // BLOCK * BLOCK)
        end = complete_records(self._words, begin, limit)[0] if limit > begin else begin
        if end > begin:
            head = chunks.header(chunks.DATA, self.cpu, end - begin, self._start, now, begin)
            write_all(self.sink, head)
            for part in self._parts(begin, end):
                write_all(self.sink, part.data)
            self._give_back(begin, end)
            self.written += len(head) + end - begin
        if end == claimed:
            # Later records are claimed after `now`, and no record is older than its claim.
            self._start = now
        if now - self._looked > _LOOK_NS:
            self._note_losses(now)
        return end - begin

    def _awaits_more(self) -> bool:
        return self._word(TAKEN) < self._word(CLAIMED)

    def _word(self, at: int) -> int:
        return int(self._state[at // 8])

    def _parts(self, begin: int, end: int) -> list[Any]:
        """Returns the bytes between two positions, in two parts if they cross the ring's end."""
        size = len(self._bytes)
        first, length = begin % size, end - begin
        within = min(length, size - first)
        parts = [self._bytes[first : first + within]]
        return parts if within == length else [*parts, self._bytes[: length - within]]

    def _give_back(self, begin: int, end: int) -> None:
        for part in self._parts(begin, end):
            part.fill(0)
        # No program may see the new end before the zeros: a release and an acquisition of a lock
        # keep the order of stores on every machine.
        self._order.release()
        self._order.acquire()
        self._state[TAKEN // 8] = end

    def _note_losses(self, now: int) -> None:
        if (count := self._word(LOST)) > self._lost_before:
            lost = count - self._lost_before
            head = chunks.header(chunks.LOST, self.cpu, 0, self._looked, now, lost)
            write_all(self.sink, head)
            self.written += len(head)
        self._lost_before = count
        self._looked = now

    def move_last(self) -> None:
        """Moves the remaining records, and writes the losses since the last read of the count.

        A program may still be writing one.
        """
        deadline = time.monotonic_ns() + _PATIENCE_NS
        while self.move() or (self._awaits_more() and time.monotonic_ns() < deadline):
            pass
        self._note_losses(time.monotonic_ns())

    def inherit(self) -> None:
        """Does nothing: the forked process inherits the ring's mapping."""

    def take_over(self) -> None:
        """Removes an incomplete last chunk, and skips ring records that the file already has."""
        headers = chunks.mend(self.sink, self.path)
        counted = headers[headers["kind"] == chunks.LOST]
        self._lost_before = int(counted["at"].sum())
        if len(counted):
            self._looked = int(counted["end"].max())
        data = headers[headers["kind"] == chunks.DATA]
        if len(data):
            last = data[-1]
            self._start = int(last["start"])
            if (begin := int(last["at"])) == self._word(TAKEN):
                self._give_back(begin, begin + int(last["bytes"]))

    def describe(self) -> dict[str, Any]:
        """Returns the manifest entries that a decoder needs."""
        return {"samples": SAMPLES}

    def stats(self) -> dict[str, int]:
        """Returns counters for the manifest.

        `dropped events` are all records that found no room: the file has them, too, with times,
        unless the drain ended early. `entries` are records left in the ring. Those behind an
        incomplete one cannot be counted: they and it are one.
        """
        begin, claimed = self._word(TAKEN), self._word(CLAIMED)
        end, complete = complete_records(self._words, begin, claimed)
        return {
            "read bytes": self.written,
            "missed": self._missed(),
            "dropped events": self._word(LOST),
            "entries": complete + (end < claimed),
        }

    def close(self) -> None:
        """Closes the file. It may be called more than once."""
        if self.sink >= 0:
            os.close(self.sink)
            self.sink = -1
            del self._bytes, self._words, self._state
