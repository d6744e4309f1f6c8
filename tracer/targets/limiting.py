"""The cgroups whose limits a target has: its own, and those above."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from tracer.probes.cgroups import UNIFIED
from tracer.probes.sampler.limits import CONTROLLERS, Place
from tracer.targets.cgroups import Cgroup, cgroup_at, hierarchies
from tracer.targets.target import Target

_MOST_ABOVE = 64
"""Most cgroups above a target that are read. A user may nest thousands, with a limit each."""


def own_cgroups(paths: dict[int, str]) -> list[Cgroup]:
    """Returns cgroups by their paths in each mounted hierarchy (`of_process`)."""
    found = [cgroup_at(h, h.number, paths[h.number]) for h in hierarchies() if h.number in paths]
    # A path that begins with /.. leads out of our cgroup namespace.
    return [cgroup for cgroup in found if os.pardir not in cgroup.path.split("/")]


def limiting(cgroups: list[Cgroup], named: bool) -> tuple[list[Place], dict[str, str]]:
    """Returns the cgroups that may limit a target, and the reason for controllers without any.

    Of those above it, the nearest `_MOST_ABOVE` are returned.

    `named`: readings name the target's own cgroup, too, because it may have further processes.
    """
    places: list[Place] = []
    why: dict[str, str] = {}
    for controller in CONTROLLERS:
        own = next((c for c in cgroups if controller in c.controllers.split(",")), None)
        own = own or next((c for c in cgroups if c.hierarchy == UNIFIED), None)
        if own is None or own.folder is None:
            why[controller] = f"no cgroup of the controller {controller} is known or mounted here"
            continue
        instance = own.facts()["path"] if named else None
        places.append(Place(controller, own.folder, instance))
        for n, above in enumerate(PurePosixPath(own.path).parents[:_MOST_ABOVE]):
            if above.name:  # not the root
                path = Cgroup(own.hierarchy, own.controllers, str(above), None).facts()["path"]
                places.append(Place(controller, own.folder.parents[n], path, above=True))
    return places, why


def has_own(target: Target) -> bool:
    """Returns whether a target is a cgroup or a container."""
    return target.kind in ("container", "cgroup")
