"""Reasons for which a process belongs to a target, one bit each, by how specific they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracer.probes.cgroups import BY_DESCENT, UNIFIED, container_id

NOBODY = 0
"""A value for no target. A target's number is its place in the manifest, from 1."""

_RANK = {"pid": 0, "command": 0, "container": 1, "cgroup": 2, "daemon": 3}
_WORD = (1 << 64) - 1
_CACHED_PATHS = 4096


class _Slot(NamedTuple):
    rank: int
    shortness: int
    """Less for a longer path: of two cgroups of a kind the inner one counts."""
    target: int
    hierarchy: int
    path: str


class Slots:
    """The slots of a recording: sets of them are integers with a bit for each.

    A slot is a target by descent, or one cgroup of a target in one hierarchy. The lowest slot that
    a process has says which target it belongs to: process or command, then container, cgroup,
    daemon. Above them are slots that say no target: `followed`, and one for each container whose
    shim (and all that descends from it) makes processes for it.
    """

    def __init__(self, targets: Sequence[Mapping[str, Any]]) -> None:
        """`targets` of the manifest; a kind that is not known has no slot."""
        self._slots = sorted(_declared(targets))
        self.followed = 1 << len(self._slots)
        self._makers = {
            number: self.followed << 1 + n
            for n, number in enumerate(
                number for number, target in enumerate(targets, 1) if target.get("makers")
            )
        }
        self.words = (len(self._slots) + len(self._makers)) // 64 + 1
        self.of_target = np.array([slot.target for slot in self._slots] or [NOBODY], np.int16)
        """The target of each slot that says one."""
        daemons = self._where(lambda slot: slot.rank == _RANK["daemon"])
        self._daemons = daemons
        unified = self._where(lambda slot: slot.hierarchy == UNIFIED)
        self.kept_inside = self.as_words(~(unified | daemons))
        """The parent's slots that a child keeps if it is made right within another cgroup."""
        self.making = np.array([self.as_words(bit) for bit in self._makers.values()], np.uint64)
        """Slots of makers, and what a child has that a maker makes within another cgroup."""
        self.making_gives = np.array(
            [self.as_words(self.of(number, UNIFIED)) for number in self._makers], np.uint64
        )
        self.making.shape = self.making_gives.shape = (len(self._makers), self.words)
        self._daemon_container: str | None = None
        self._known: dict[tuple[int, str], tuple[int, int]] = {}

    def of(self, target: int, hierarchy: int) -> int:
        """The slots of a target in a hierarchy, or by descent."""
        return self._where(lambda slot: slot.target == target and slot.hierarchy == hierarchy)

    def maker_of(self, target: int) -> int:
        """The slot of whoever makes processes for a target; none where nobody does."""
        return self._makers.get(target, 0)

    def target(self, slots: int) -> int:
        """The target that these slots say, or NOBODY."""
        lowest = (slots & -slots).bit_length() - 1
        return self._slots[lowest].target if 0 <= lowest < len(self._slots) else NOBODY

    def daemon_runs_in(self, container: str | None) -> None:
        """Tell of the container in which the daemon itself runs: its cgroup is no other's."""
        self._daemon_container = container

    def entered(self, hierarchy: int, path: str) -> tuple[int, int]:
        """(slots to clear, slots to set) of a process that is moved into a cgroup."""
        key = (hierarchy, path)
        if key not in self._known:
            if len(self._known) >= _CACHED_PATHS:
                self._known.clear()
            clear = self._where(lambda slot: slot.hierarchy == hierarchy)
            inside = self._where(
                lambda slot: slot.hierarchy == hierarchy and _is_within(path, slot.path)
            )
            if container_id(path) not in (None, self._daemon_container):
                clear |= self._daemons
            self._known[key] = (clear, inside)
        return self._known[key]

    def _where(self, wanted: Callable[[_Slot], bool]) -> int:
        return sum(1 << n for n, slot in enumerate(self._slots) if wanted(slot))

    def as_words(self, slots: int) -> NDArray[np.uint64]:
        """A set of slots as `words` integers of 64 bits, the lowest first."""
        return np.array([slots >> 64 * n & _WORD for n in range(self.words)], np.uint64)


def _declared(targets: Sequence[Mapping[str, Any]]) -> Iterator[_Slot]:
    for number, target in enumerate(targets, 1):
        rank = _RANK.get(target["kind"])
        if rank is None:
            continue
        if "cgroups" not in target:
            yield _Slot(rank, 0, number, BY_DESCENT, "")
        for cgroup in target.get("cgroups", ()):
            path = cgroup["path"].rstrip("/")
            yield _Slot(rank, -len(path), number, cgroup["hierarchy"], path)


def _is_within(path: str, cgroup: str) -> bool:
    return path == cgroup or path.startswith(f"{cgroup}/")
