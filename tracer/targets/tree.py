"""The tree of the machine's processes, read once for all targets of a look."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cached_property

import psutil


class ProcessTree:
    """The children of each process at one moment: when the tree is first used."""

    def __init__(self) -> None:
        """Reads nothing yet."""
        self.begun_ns = time.monotonic_ns()
        """Time (ns of CLOCK_MONOTONIC) before the moment that the tree shows."""

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        """The children of each living process; a key for each process."""
        parents = {process.pid: process.info["ppid"] for process in psutil.process_iter(["ppid"])}
        children: dict[int, list[int]] = {pid: [] for pid in parents}
        for pid, parent in parents.items():
            if parent in children:
                children[parent].append(pid)
        return children

    def descendants(
        self, roots: Iterable[int], but: Callable[[int], bool] = lambda pid: False
    ) -> set[int]:
        """Returns these processes and all their descendants that lived then.

        If `but` returns true for a process, it is left out with its descendants, unless it is a
        root.
        """
        found: set[int] = set()
        waiting = [pid for pid in roots if pid in self._children]
        while waiting:
            pid = waiting.pop()
            if pid not in found:
                found.add(pid)
                waiting += [child for child in self._children[pid] if not but(child)]
        return found
