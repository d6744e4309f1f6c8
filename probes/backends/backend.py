"""What a backend is to a recording, and which of a probe's events a kernel has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from probes.backends.drain import Source
from probes.errors import FeatureMissing
from probes.schema import Event, Feed, Probe, Scope

CLOCK = "mono"
"""CLOCK_MONOTONIC by its name in ftrace; every backend's times are of it."""


def all_but(tids: Iterable[int]) -> str:
    """A filter of events, as the kernel takes it, that lets in those of all other threads."""
    return " && ".join(f"common_pid != {tid}" for tid in tids)


class Filter(Protocol):
    """Whose events of one scope are let in."""

    def set_option(self, option: str, on: bool) -> bool:
        """Switch an option of ftrace's; False where there is no such option."""
        ...

    def set_pids(self, tids: Iterable[int]) -> None:
        """Let in only these threads."""
        ...

    def add_pids(self, tids: Iterable[int]) -> None:
        """Add threads to what `set_pids` set."""
        ...

    def leave_out(self, tids: Iterable[int]) -> None:
        """Let in no events of these threads, which are the recorder's."""
        ...

    def without(self, tids: Iterable[int]) -> set[int]:
        """Those of these threads that are not let in."""
        ...

    def start(self) -> None:
        """Let events in."""
        ...

    def stop(self) -> None:
        """Let no more events in."""
        ...

    def close(self) -> None:
        """Give back what it holds in the kernel. Its sources must be closed."""
        ...


class Backend(Protocol):
    """Events on their way out of the kernel; made, none is let in yet."""

    filters: dict[Scope, Filter]
    """Of each scope that has events."""
    formats: dict[str, str]
    """Event name to its format file."""
    missing: dict[str, list[str]]
    """Probe to those of its events that this kernel lacks."""
    layout: dict[str, str]
    """`header_page` and `header_event` of tracefs, where pages are recorded."""
    wide: bool
    """Whether everybody's events are recorded, whoever is followed."""

    @property
    def sources(self) -> Sequence[Source]:
        """What the drain moves."""
        ...


def available(
    probe: Probe, has: Callable[[str], bool], missing: dict[str, list[str]]
) -> list[Event]:
    """The tracepoints of a probe that this kernel has; others are put into `missing`.

    Raises FeatureMissing where it has none of a probe that needs some.
    """
    wanted = [event for event in probe.events if event.feed is Feed.TRACEPOINT]
    present = [event for event in wanted if has(event.name)]
    if not present and not probe.optional:
        raise FeatureMissing(
            f"this kernel has none of the events of probe {probe.name}",
            "leave it out with -e, or see `tracer doctor`",
        )
    # An older kernel's name for an event that is there is nothing missing.
    served = {event.label for event in present}
    if absent := [event.name for event in wanted if event.label not in served]:
        missing[probe.name] = absent
    return present
