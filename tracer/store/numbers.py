"""The numbers of phases: the epoch of each cycle, and the cycle that used each batch."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Numbers = tuple[int | None, int | None]
"""Epoch and step of a phase."""

_CYCLE_BITS = 40
_NUMBERS = 8
"""Numbers of each use of a batch."""
_ABSENT = -(1 << 63)


class Epochs:
    """The epochs of the cycles of all loops."""

    def __init__(self) -> None:
        self._firsts: list[array[int]] = []
        """The first cycle of each epoch, for each loop."""
        self._cycles: list[int] = []

    def new_loop(self) -> int:
        """Adds a loop and returns its number."""
        self._firsts.append(array("q"))
        self._cycles.append(0)
        return len(self._firsts) - 1

    def end(self, loop: int, firsts: array[int], cycles: int) -> None:
        """Notes the first cycle of each epoch of a loop, and the loop's number of cycles."""
        self._firsts[loop] = firsts
        self._cycles[loop] = cycles

    def find(
        self, loops: NDArray[np.int64], cycles: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns the epoch of each cycle, and whether it has one: a cycle may not exist."""
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
    """The cycle that used each batch. It gives the worker that made the batch its numbers.

    All batches are noted before the first search.
    """

    def __init__(self) -> None:
        self._noted = array("q")
        self._uses: NDArray[np.int64] = np.empty((0, _NUMBERS), np.int64)
        """The numbers of `note`, sorted by the first three."""
        self._passes: dict[tuple[int, int], tuple[int, int]] = {}
        """The range in `_uses` of each process's pass over the data."""

    def note(
        self,
        pid: int,
        iteration: int,
        batch: int,
        loop: int,
        cycle: int,
        step: int,
        around: Numbers | None,
    ) -> None:
        """Notes that a process has used a batch of a pass over the data. Step -1: none.

        `around`: epoch and step of the script's phase around the use, if it has any.
        """
        marked = around or (None, None)
        script = (_ABSENT if number is None else number for number in marked)
        self._noted.extend((pid, iteration, batch, loop, cycle, step, *script))

    def find(
        self, pid: int, iteration: int, batch: int
    ) -> tuple[int, int, int, Numbers | None] | None:
        """Returns (loop, cycle, step or -1, `around`) of a batch's last use; None: not used."""
        if self._noted:
            self._sort()
        first, end = self._passes.get((pid, iteration), (0, 0))
        at = first + int(np.searchsorted(self._uses[first:end, 2], batch, side="right")) - 1
        if at < first or self._uses[at, 2] != batch:
            return None
        loop, cycle, step, *script = self._uses[at, 3:].tolist()
        epoch, inner = (None if number == _ABSENT else number for number in script)
        return loop, cycle, step, None if epoch is None and inner is None else (epoch, inner)

    def _sort(self) -> None:
        noted = np.frombuffer(self._noted, np.int64).reshape(-1, _NUMBERS)
        self._uses = noted[np.lexsort((noted[:, 2], noted[:, 1], noted[:, 0]))]
        self._noted = array("q")
        passes = self._uses[:, :2]
        begins = np.flatnonzero(np.any(passes[1:] != passes[:-1], axis=1)) + 1
        bounds = [0, *begins.tolist(), len(passes)]
        for first, end in pairwise(bounds):
            pid, iteration = passes[first].tolist()
            self._passes[pid, iteration] = (first, end)
