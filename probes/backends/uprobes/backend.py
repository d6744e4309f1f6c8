"""Uprobes of one recording: their group, their instance, its streams."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from tracer.probes.backends.backend import CLOCK
from tracer.probes.backends.drain import WAKE_PERCENT
from tracer.probes.backends.event_format import parse_page
from tracer.probes.backends.ftrace.instance import Instance
from tracer.probes.backends.ftrace.page_source import PageSource
from tracer.probes.backends.uprobes.events import Group
from tracer.probes.backends.uprobes.places import find_places
from tracer.probes.errors import FeatureMissing, PermissionMissing
from tracer.probes.events import gpu_calls, opens, torch_calls
from tracer.probes.uprobe_place import Place

SUBJECTS = {
    module.PROBE.name: (module.GROUP, module.PLACES) for module in (torch_calls, opens, gpu_calls)
}
"""Probes that are fed by uprobes: the group of their events, and their places, by name."""
SCOPE = "uprobes"
_KIB = 512


class Uprobes:
    """Events at places in libraries that are open; made, none is let in yet.

    `unavailable` tells for each probe without events why it has none. `left_out` counts the files
    of the other probes in which their functions were not found.
    """

    def __init__(
        self, raw: Path, cpus: list[int], libraries: Mapping[str, Collection[int]]
    ) -> None:
        """Puts the events of each probe, by name, into each of its files (descriptors)."""
        self.sources: list[PageSource] = []
        self.formats: dict[str, str] = {}
        self.layout: dict[str, str] = {}
        self.unavailable: dict[str, str] = {}
        self.left_out: Counter[str] = Counter()
        self.instance: Instance | None = None
        self._group: Group | None = None
        try:
            self._group = Group()
            placed: dict[str, str] = {}
            for probe, files in libraries.items():
                placed |= self._placed(self._group, probe, files)
            if placed:
                self.instance = Instance(SCOPE)
                self._prepare(self.instance, self._group.name, placed)
                self._open(raw, self.instance, cpus)
            else:
                self.close()
        except (FeatureMissing, PermissionMissing) as error:
            # The rest is recorded without it.
            self.unavailable |= dict.fromkeys(libraries, str(error))
            self._discard()
        except BaseException:
            self.close()
            raise

    def _placed(self, group: Group, probe: str, files: Collection[int]) -> dict[str, str]:
        """Returns the events of a probe, whose names in tracefs are their keys."""
        system, places = SUBJECTS[probe]
        found = set()
        why = "the library has none of the functions"
        for library in files:
            try:
                found |= self._place(group, library, places)
            except FeatureMissing as error:
                why = str(error)
                self.left_out[probe] += 1
        if not found:
            del self.left_out[probe]
            self.unavailable[probe] = why
        return {event: f"{system}:{event}" for event in found}

    def _place(self, group: Group, library: int, places: Mapping[str, Place]) -> set[str]:
        arguments = {
            event: dict(place.arguments).get(platform.machine(), "")
            for event, place in places.items()
        }
        # The registers of other architectures are not known here.
        known = [e for e, place in places.items() if arguments[e] or not place.arguments]
        found = set()
        for event, offsets in find_places(
            library, {event: places[event] for event in known}
        ).items():
            for offset in offsets:
                group.add(event, library, offset, arguments[event])
                found.add(event)
        return found

    def _prepare(self, instance: Instance, group: str, events: Mapping[str, str]) -> None:
        instance.stop()
        instance.set_clock(CLOCK)
        instance.set_buffer(_KIB)
        for event in sorted(events):
            self.formats[events[event]] = instance.enable_event(f"{group}:{event}")

    def _open(self, raw: Path, instance: Instance, cpus: list[int]) -> None:
        self.layout = {
            header: instance.read(f"events/{header}") for header in ("header_page", "header_event")
        }
        page_bytes = parse_page(self.layout["header_page"]).page_bytes
        wakes = instance.wake_reader_at(WAKE_PERCENT)
        for cpu in cpus:
            path = raw / f"ftrace-{SCOPE}-cpu{cpu}.raw"
            source = PageSource(instance, cpu, path, page_bytes, _KIB << 10, wakes)
            self.sources.append(source)
            source.open()

    def close(self) -> None:
        """Remove the instance, then the uprobes. The streams are closed first."""
        for source in self.sources:
            source.close()
        if self.instance is not None:
            self.instance.close()
            self.instance = None
        if self._group is not None:
            self._group.close()
            self._group = None

    def _discard(self) -> None:
        """Closes everything and removes the files of the streams."""
        self.close()
        for source in self.sources:
            source.path.unlink(missing_ok=True)
        self.sources = []
