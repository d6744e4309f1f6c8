"""Containers that run for a part of the recording only, of engines that remember no such thing."""

from __future__ import annotations

import os
import time

from tracer.session.watch import Watch
from tracer.store.manifest import MOST_CONTAINERS
from tracer.store.manifest_parts import ContainerFacts
from tracer.targets import containers_now, folders_of_containers

_GOES_ON_S = 2.0
"""Time in s for which a container is looked for after something was made in a folder."""
_SHARE = 10
"""At most one part in so many of a CPU is used for looks."""
_LEAST_S = 0.1


class Newcomers:
    """Looks at the engines' containers as soon as something appears in their folders.

    Docker's daemon remembers its containers, so it is not asked.
    """

    def __init__(self) -> None:
        """Watches nothing yet."""
        self.met: dict[str, ContainerFacts] = {}
        """Containers that were found so far."""
        self.crowded = 0
        """Number of looks that found more containers than are kept."""
        self._ended: set[str] = set()
        """Containers that did not run at the start."""
        self._watch: Watch | None = None
        self._until = 0.0
        self._rests_until = 0.0

    def start(self) -> None:
        """Begins to watch the folders that exist now."""
        self._watch = Watch()
        self._add_folders()
        self._ended = {facts["id"] for facts in containers_now() if not facts["pid"]}

    def _add_folders(self) -> None:
        assert self._watch is not None
        for folder in folders_of_containers():
            self._watch.add(folder)
            os.close(folder)

    @property
    def readable(self) -> list[int]:
        """Descriptors that become readable when it is time to call `look`."""
        resting = time.monotonic() < self._rests_until
        known = self._watch is not None and self._watch.fd is not None and not resting
        return [self._watch.fd] if known else []  # type: ignore[union-attr, list-item]

    def look(self) -> None:
        """Notes the containers that are there now, if something was made lately."""
        now = time.monotonic()
        if self._watch is None or now < self._rests_until:
            return
        if self._watch.told:
            self._watch.clear()
            self._until = now + _GOES_ON_S
        if now >= self._until:
            return
        crowded = False
        for facts in containers_now():
            identity = facts["id"]
            new = identity not in self.met
            if new and len(self.met) >= MOST_CONTAINERS:
                crowded = True
            elif facts["pid"] or (new and identity not in self._ended):
                self.met[identity] = facts
        self.crowded += crowded
        self._add_folders()
        taken = time.monotonic() - now
        self._rests_until = time.monotonic() + max(_LEAST_S, taken * _SHARE)

    def close(self) -> None:
        """Stops watching. Repeated calls do no harm."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
