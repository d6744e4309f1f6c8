"""The numbers that phases have: which cycle is in which epoch, and which one used a batch."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_CYCLE_BITS = 40


class Epochs:
    """Which cycles of which loops are in which epoch."""

    def __init__(self) -> None:
        self._firsts: list[array[int]] = []
        """The first cycle of each epoch, for each loop."""
        self._cycles: list[int] = []

    def new_loop(self) -> int:
        """The number of another loop."""
        self._firsts.append(array("q"))
        self._cycles.append(0)
        return len(self._firsts) - 1

    def end(self, loop: int, firsts: array[int], cycles: int) -> None:
        """Note the first cycle of each epoch of a loop, and how many cycles it had in all."""
        self._firsts[loop] = firsts
        self._cycles[loop] = cycles

    def find(
        self, loops: NDArray[np.int64], cycles: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The epoch of each cycle, and whether there is one: a cycle may never have come."""
        counts = np.array([len(firsts) for firsts in self._firsts] or [0], np.int64)
        begins = np.cumsum(counts) - counts
        parts = [np.frombuffer(firsts, np.int64) for firsts in self._firsts if len(firsts)]
        owners = np.repeat(np.arange(len(counts)), counts) << _CYCLE_BITS
        keys = owners + (np.concatenate(parts) if parts else np.empty(0, np.int64))
        lengths = np.array(self._cycles or [0], np.int64)
        known = (loops >= 0) & (cycles >= 0) & (cycles < lengths[loops])
        at = np.searchsorted(keys, (loops << _CYCLE_BITS) + cycles, side="right") - 1
        epochs = at - begins[loops]
        return epochs, known & (epochs >= 0)


class Batches:
    """Which batch was used in which cycle: a worker has made it for that.

    All of them are noted before the first is looked for.
    """

    def __init__(self) -> None:
        self._noted = array("q")
        self._uses: NDArray[np.int64] = np.empty((0, 6), np.int64)
        """(pid, iteration, batch, loop, cycle, step), sorted by the first three."""
        self._passes: dict[tuple[int, int], tuple[int, int]] = {}
        """Where the uses of a process's pass over the data lie in `_uses`."""

    def note(self, pid: int, iteration: int, batch: int, loop: int, cycle: int, step: int) -> None:
        """A process has used a batch of a pass over the data. No step: -1."""
        self._noted.extend((pid, iteration, batch, loop, cycle, step))

    def find(self, pid: int, iteration: int, batch: int) -> tuple[int, int, int] | None:
        """(loop, cycle, step or -1) of its last use; None if the batch was not used."""
        if self._noted:
            self._sort()
        first, end = self._passes.get((pid, iteration), (0, 0))
        at = first + int(np.searchsorted(self._uses[first:end, 2], batch, side="right")) - 1
        if at < first or self._uses[at, 2] != batch:
            return None
        loop, cycle, step = self._uses[at, 3:].tolist()
        return loop, cycle, step

    def _sort(self) -> None:
        noted = np.frombuffer(self._noted, np.int64).reshape(-1, 6)
        self._uses = noted[np.lexsort((noted[:, 2], noted[:, 1], noted[:, 0]))]
        self._noted = array("q")
        passes = self._uses[:, :2]
        begins = np.flatnonzero(np.any(passes[1:] != passes[:-1], axis=1)) + 1
        bounds = [0, *begins.tolist(), len(passes)]
        for first, end in pairwise(bounds):
            pid, iteration = passes[first].tolist()
            self._passes[pid, iteration] = (first, end)
