"""The states of threads that leave their CPU, by the names that the kernel prints."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.kernel_stacks import ENDED as ENDED_LETTERS

BEFORE, NEW, ENDED = 0, 1, -1
"""Codes of states that no switch tells: the thread left its CPU before the recording; it has not
run yet. ENDED: the thread has left its CPU for the last time."""
_OTHER = "other"
_MOST_NAMES, _LONGEST_NAME = 1024, 64
"""Most names of a trace, and most characters of one: beyond them, a state is `other`. Kernels have
eleven letters at most, and few combinations of them."""


class TaskStates:
    """Codes and names of the values of `prev_state`."""

    def __init__(self, switch: EventFormat | None) -> None:
        """`switch` is the format of `sched_switch`, whose print format names the bits."""
        self._flags = {} if switch is None else dict(switch.flags.get("prev_state", {}))
        self._preempted = 2 * max(self._flags, default=0)
        """The first bit beyond the named ones: the kernel took the CPU away."""
        self.listed = ["", "new"]
        """The name of each code."""
        self.runnable: list[int] = []
        """Codes of states in which a thread can run."""
        self._code_of: dict[int, int] = {}
        self._code_of_name: dict[str, int] = {}

    def codes(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the codes of values of `prev_state`."""
        unique, inverse = np.unique(states, return_inverse=True)
        found = np.array([self._code(state) for state in unique.tolist()], np.int64)
        codes: NDArray[np.int64] = found[inverse.reshape(-1)]
        return codes

    def _code(self, state: int) -> int:
        code = self._code_of.get(state)
        if code is None:
            code = self._new_code(state)
            if len(self._code_of) < _MOST_NAMES:
                self._code_of[state] = code
        return code

    def _new_code(self, state: int) -> int:
        names = [name for bit, name in self._flags.items() if state & bit]
        if any(name in ENDED_LETTERS for name in names):
            return ENDED
        # The kernel prints bits that have no name as a number, and none beyond the plus.
        rest = state & (self._preempted - 1) if self._preempted else state & (1 << 64) - 1
        for bit in self._flags:
            rest &= ~bit
        if rest:
            names.append(f"{rest:#x}")
        name = ("|".join(names) or "R") + ("+" if state & self._preempted else "")
        many = name not in self._code_of_name and len(self.listed) >= _MOST_NAMES
        if many or len(name) > _LONGEST_NAME:
            name, names = _OTHER, [_OTHER]
        if name not in self._code_of_name:
            self._code_of_name[name] = len(self.listed)
            self.listed.append(name)
            if not names:
                self.runnable.append(self._code_of_name[name])
        return self._code_of_name[name]
