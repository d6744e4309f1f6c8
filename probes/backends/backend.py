"""The interface of a backend to a recording, and the events of a probe that a kernel has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tracer.probes.backends.drain import Source
from tracer.probes.errors import FeatureMissing
from tracer.probes.schema import Event, Feed, Probe, Scope

CLOCK = "mono"
"""The name of CLOCK_MONOTONIC in ftrace. All backends take their times from this clock."""


IN_INTERRUPT = 0x08 | 0x10 | 0x40
"""Bits of common_flags in hard interrupts, soft interrupts and NMIs (enum trace_flag_type in
include/linux/trace_events.h, unchanged since they are read by other programs)."""


def all_but(tids: Iterable[int]) -> str:
    """Returns a kernel event filter that admits the events of all threads except these.

    An event in an interrupt is admitted, whichever thread was interrupted. An empty filter admits
    all events.
    """
    if not (listed := list(tids)):
        return ""
    others = " && ".join(f"common_pid != {tid}" for tid in listed)
    return f"common_flags & {IN_INTERRUPT} || ({others})"


class Filter(Protocol):
    """The filter by thread of the events of one scope."""

    def set_option(self, option: str, on: bool) -> bool:
        """Switches an ftrace option. Returns False if the option does not exist."""
        ...

    def set_pids(self, tids: Iterable[int]) -> None:
        """Admits the events of these threads only."""
        ...

    def add_pids(self, tids: Iterable[int]) -> None:
        """Adds threads to the set that `set_pids` made."""
        ...

    def leave_out(self, tids: Iterable[int]) -> None:
        """Excludes the events of these threads, which belong to the recorder."""
        ...

    def without(self, tids: Iterable[int]) -> set[int]:
        """Returns the threads among `tids` that the filter excludes."""
        ...

    def start(self) -> None:
        """Starts to record events."""
        ...

    def stop(self) -> None:
        """Stops recording events."""
        ...

    def close(self) -> None:
        """Releases its kernel resources. Its sources must be closed first."""
        ...


class Together:
    """A `Filter` that passes each change to two others."""

    def __init__(self, first: Filter, second: Filter) -> None:
        self.first = first
        self.second = second

    def set_option(self, option: str, on: bool) -> bool:
        """Sets an option of both filters; returns whether the first has it."""
        self.second.set_option(option, on)
        return self.first.set_option(option, on)

    def set_pids(self, tids: Iterable[int]) -> None:
        """Sets the threads of both filters."""
        listed = list(tids)
        self.first.set_pids(listed)
        self.second.set_pids(listed)

    def add_pids(self, tids: Iterable[int]) -> None:
        """Adds threads to both filters."""
        listed = list(tids)
        self.first.add_pids(listed)
        self.second.add_pids(listed)

    def leave_out(self, tids: Iterable[int]) -> None:
        """Excludes the events of these threads in both filters."""
        listed = list(tids)
        self.first.leave_out(listed)
        self.second.leave_out(listed)

    def without(self, tids: Iterable[int]) -> set[int]:
        """Returns the threads among `tids` that one of the filters excludes."""
        listed = list(tids)
        return self.first.without(listed) | self.second.without(listed)

    def start(self) -> None:
        """Starts both filters."""
        self.second.start()
        self.first.start()

    def stop(self) -> None:
        """Stops both filters."""
        self.first.stop()
        self.second.stop()

    def close(self) -> None:
        """Closes both."""
        try:
            self.first.close()
        finally:
            self.second.close()


class Backend(Protocol):
    """A backend that is set up. It records no events until its filters are started."""

    filters: dict[Scope, Filter]
    """Scope to its filter, for each scope that has events."""
    formats: dict[str, str]
    """Event name to the text of its format file."""
    missing: dict[str, list[str]]
    """Probe name to the names of its events that this kernel lacks."""
    layout: dict[str, str]
    """`header_page` and `header_event` of tracefs, if the backend records ring-buffer pages."""
    wide: bool
    """True if events of all processes are recorded, not only those of the targets."""

    @property
    def sources(self) -> Sequence[Source]:
        """Kernel buffers that the drain copies to files."""
        ...


class NoEvents:
    """A `Backend` without events, for users whom the kernel lets record none."""

    wide = False

    def __init__(self, probes: Iterable[Probe]) -> None:
        """Lists all events of `probes` as missing."""
        self.filters: dict[Scope, Filter] = {}
        self.formats: dict[str, str] = {}
        self.missing = {
            probe.name: [event.name for event in probe.events if event.feed is Feed.TRACEPOINT]
            for probe in probes
        }
        self.layout: dict[str, str] = {}
        self.sources: list[Source] = []


def available(
    probe: Probe, has: Callable[[str], bool], missing: dict[str, list[str]]
) -> list[Event]:
    """Returns the tracepoints of a probe that this kernel has; adds the others to `missing`.

    Raises FeatureMissing if the kernel has none of them and the probe is not optional.
    """
    wanted = [event for event in probe.events if event.feed is Feed.TRACEPOINT]
    present = [event for event in wanted if has(event.name)]
    if not present and not probe.optional:
        raise FeatureMissing(
            f"this kernel has none of the events of probe {probe.name}",
            "select other probes with -e, or run `tracer doctor` to see which ones work",
        )
    # An event may have another name on older kernels. It is missing only if no name is present.
    served = {event.label for event in present}
    if absent := [event.name for event in wanted if event.label not in served]:
        missing[probe.name] = absent
    return present
