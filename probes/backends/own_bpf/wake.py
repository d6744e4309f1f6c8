"""Wakes the drain when a ring has filled.

A BPF program can wake a process by a record of a perf event only. Each CPU has one such event, with
a ring of a page that is overwritten: nobody reads its records.
"""

from __future__ import annotations

import fcntl
import mmap
import os

from tracer.probes.backends.own_bpf.kernel import make_perf_event_array, put
from tracer.probes.backends.perf_events.attributes import BPF_OUTPUT, ENABLE, open_event
from tracer.probes.errors import FeatureMissing


class Wakers:
    """A perf event of each CPU, and the array by which programs find them."""

    def __init__(self, cpus: list[int]) -> None:
        """Opens the events. Raises PermissionMissing or FeatureMissing."""
        self.events: dict[int, int] = {}
        """CPU to an fd that becomes readable when a program wakes its reader."""
        self._memory: list[mmap.mmap] = []
        self.array = make_perf_event_array(1 + max(cpus))
        try:
            for cpu in cpus:
                fd = self.events[cpu] = open_event(BPF_OUTPUT, cpu, mappings=False, wake_bytes=1)
                self._memory.append(_map(fd))
                put(self.array, cpu, fd)
                fcntl.ioctl(fd, ENABLE, 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the events."""
        for memory in self._memory:
            memory.close()
        for fd in (*self.events.values(), self.array):
            os.close(fd)
        self._memory = []
        self.events = {}


def _map(fd: int) -> mmap.mmap:
    """Maps the ring of an event. A ring that can only be read is overwritten."""
    try:
        return mmap.mmap(fd, 2 * mmap.PAGESIZE, prot=mmap.PROT_READ)
    except OSError as error:
        raise FeatureMissing(
            f"no perf ring of a page can be had: {error.strerror}",
            "raise kernel.perf_event_mlock_kb, or run with CAP_IPC_LOCK",
        ) from None
