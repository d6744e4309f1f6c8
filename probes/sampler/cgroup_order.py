"""The order in which the cgroups below a memory limit were made, in which the kernel reclaims.

The number of a cgroup is the inode number of its folder: the kernel counts them up
(__kernfs_new_node in fs/kernfs/dir.c). Reclaim walks through the cgroups below a limit, each before
those below it, in the order in which they were made (css_next_descendant_pre).
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from tracer.probes.folders import walk
from tracer.probes.sampler.reading import Reading, Series

NUMBER = Series(
    "cgroup_number",
    "",
    "number of the target's memory cgroup, by which cgroups are in the order in which they were "
    "made; with an instance: that of a cgroup below one with a memory limit that the target has, "
    "also if it is none of the target's; one row for each",
    identifies=True,
)
MOST_BELOW = 64
"""Most cgroups below a limit that are numbered. A user may nest thousands."""


class CgroupOrder:
    """A reader of the numbers of cgroups: each is read once."""

    def __init__(self) -> None:
        self._told: set[tuple[str | None, int]] = set()
        self.missing: dict[str, str] = {}
        """Limits whose cgroups are not numbered, with the reason."""

    def own(self, folder: Path) -> list[Reading]:
        """Returns the number of the target's own cgroup, unless it was read before."""
        return self._new(None, str(folder))

    def below(self, folder: Path, path: str | None) -> list[Reading]:
        """Returns the numbers of the cgroups below one that has a limit, and this `path`.

        Those that were read before are left out. If there are more than MOST_BELOW, none is read.
        """
        top = str(folder)
        places = [place for place, _ in islice(walk(top), 1, MOST_BELOW + 2)]
        if len(places) > MOST_BELOW:
            why = f"there are more than {MOST_BELOW} of them"
            self.missing[f"{NUMBER.name} below {path}"] = why
            return []
        found: list[Reading] = []
        for place in places:
            rest = os.fsencode(place[len(top) :]).decode("utf-8", "backslashreplace")
            found += self._new(f"{path}{rest}", place)
        return found

    def _new(self, instance: str | None, folder: str) -> list[Reading]:
        try:
            os.stat(f"{folder}/memory.stat")  # noqa: PTH116 as in `walk`
            key = instance, os.stat(folder).st_ino  # noqa: PTH116
        except OSError:
            return []  # it is gone, or its memory counts in the cgroup above
        if key in self._told:
            return []
        self._told.add(key)
        return [(NUMBER.name, instance, key[1])]
