"""Kernel stacks of threads that go to sleep: the switches that have one, in kernel words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.schema import Event, Feed, Probe

STATE = "prev_state"
"""The field of a switch that tells whether the thread sleeps."""
ENDED = ("X", "Z", "x")
"""Letters of the states of a thread that has ended: dead, zombie, and the TASK_DEAD of kernels
before 4.14 (include/trace/events/sched.h)."""


def stack_events(probe: Probe) -> Iterator[Event]:
    """Yields the events of a probe that hold the kernel stack of another one."""
    return (event for event in probe.events if event.feed is Feed.STACK)


def asleep(switch: EventFormat) -> int:
    """Returns the bits of `prev_state` of which a thread that goes to sleep has one.

    A thread that could go on has none of them, and one that has ended has others. 0: the format
    names no states.
    """
    named = switch.flags.get(STATE, {})
    return sum(bit for bit, letter in named.items() if letter not in ENDED)


def note_missing(
    probes: Iterable[Probe], missing: dict[str, list[str]], has: Callable[[Event], bool]
) -> None:
    """Adds the stacks that `has` says are not recorded to `missing`, by probe.

    A stack has a name for each way to record it, and is missing if it is recorded by none.
    """
    for probe in probes:
        wanted = list(stack_events(probe))
        served = {event.label for event in wanted if has(event)}
        lacking = {event.label: event.name for event in reversed(wanted)}
        if absent := [name for label, name in lacking.items() if label not in served]:
            missing[probe.name] = [*missing.get(probe.name, []), *absent]
