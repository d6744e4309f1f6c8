"""The limits of a target as they are sampled, also when its process changes the cgroup."""

from __future__ import annotations

import contextlib

from tracer.probes.proc import read_stat
from tracer.probes.sampler.limits import CONTROLLERS, Limits
from tracer.probes.sampler.reading import Reading
from tracer.store.names import escaped
from tracer.targets import Target
from tracer.targets.cgroups import Cgroup, of_process
from tracer.targets.limiting import has_own, limiting, own_cgroups

_UNREAD = "the cgroup of its process could not be read"


class TargetLimits:
    """A reader of the limits of one target's cgroups.

    A container or a cgroup has its own. A process has those of the cgroup that it lies in, whose
    path is then the instance of the readings; it is looked up again before each reading.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._reader = Limits()
        self._paths: dict[int, str] = {}
        self._has_read = False
        if has_own(target):
            cgroups: list[Cgroup] = getattr(target, "cgroups", [])
            self._reader.at(*limiting(cgroups, named=False))
        else:
            why = _UNREAD if target.pid else "the machine is in no cgroup"
            self._reader.at((), dict.fromkeys(CONTROLLERS, why))

    def read(self) -> list[Reading]:
        """Returns the limits and their counters now; an empty list if the target has none."""
        self._has_read = True
        if not has_own(self._target) and self._target.pid:
            with contextlib.suppress(OSError):  # not ours to see
                self._follow()
        return self._reader.read()

    def _follow(self) -> None:
        """Finds the cgroups of the process again, if it has moved."""
        target = self._target
        paths = of_process(target.pid)
        if not paths or paths == self._paths:
            return
        # A process that exits, or has exited, is shown in the root of each old hierarchy.
        stat = read_stat(target.pid)
        if stat is None or stat.start_time != target.start_time or stat.exiting:
            return
        self._paths = paths
        self._reader.at(*limiting(own_cgroups(paths), named=True))

    @property
    def missing(self) -> dict[str, str]:
        """Series that the target does not have, with the reason; none before the first reading."""
        if not self._has_read:
            return {}
        name = escaped(self._target.name)
        return {f"{what} of {name}": why for what, why in self._reader.missing.items()}
