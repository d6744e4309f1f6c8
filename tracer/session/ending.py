"""What ends a recording, and how its command ends with it or after it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tracer.session.capture import Capture
from tracer.session.failures import ended_by_error
from tracer.session.launch import Launch
from tracer.session.marks import Marks
from tracer.session.members import Members
from tracer.session.options import Listener, Options, Status
from tracer.session.perf import PerfTools
from tracer.session.sampler import Sampler
from tracer.session.signals import Signals
from tracer.session.summary import Summary
from tracer.targets import Target

_TICK_S = 0.25
_GRACE_S = 10.0
"""How long a command may take to end after SIGTERM."""


@dataclass
class Running:
    """All that takes part in a recording while events are let in."""

    options: Options
    place: Path
    """Where the trace is reached (`Output.place`)."""
    targets: list[Target]
    launch: Launch | None
    capture: Capture
    marks: Marks
    perf: PerfTools
    members: Members
    summary: Summary | None
    sampler: Sampler
    signals: Signals
    listener: Listener


def until_the_end(running: Running) -> str:
    """Wait for whatever ends the recording; returns its name."""
    options, targets, launch = running.options, running.targets, running.launch
    perf, members, signals = running.perf, running.members, running.signals
    drain = running.capture.drain
    assert drain is not None
    begun = time.monotonic()
    watched: list[int] = []
    try:
        for pid in filter(None, (target.ends_with for target in targets)):
            with contextlib.suppress(OSError):
                watched.append(os.pidfd_open(pid))
        while True:
            members.look()
            running.marks.look()
            if running.summary is not None:
                running.summary.look()
            elapsed = time.monotonic() - begun
            if signals.received is not None:
                return "signal"
            failure = drain.failure or running.sampler.failure
            if failure is not None:
                return ended_by_error(failure)
            written = drain.written + perf.written + running.sampler.written
            if drain.full or (options.max_bytes and written >= options.max_bytes):
                return "size"
            if launch is not None and launch.poll() is not None:
                return "command"
            unending = launch or options.machine or options.baseload
            if not unending and not any(t.alive for t in targets):
                return "target"
            if options.duration_s is not None and elapsed >= options.duration_s:
                return "duration"
            running.listener.tick(Status(elapsed, written))
            left = _TICK_S
            if options.duration_s is not None:
                left = min(left, options.duration_s - elapsed)
            rest = running.marks.rest_s
            left = left if rest is None else min(left, rest)
            # A pidfd of a dead process stays readable: wait only for those that still run.
            alive = [fd for fd in watched if not _readable(fd)]
            signals.wait([*alive, *members.readable, *running.marks.readable], left)
    finally:
        for fd in watched:
            os.close(fd)


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def end_command(launch: Launch, signals: Signals) -> None:
    """End a command whose recording is over, with what ended the recording or SIGTERM."""
    number = signals.received or signal.SIGTERM
    deadline = time.monotonic() + _GRACE_S
    if number == signal.SIGINT:
        # At a terminal Ctrl-C has reached the command, too.
        while launch.poll() is None and time.monotonic() < deadline - _GRACE_S + 0.3:
            time.sleep(0.01)
    launch.signal(number)
    while launch.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    launch.signal(signal.SIGKILL)
    launch.wait()


def let_end(launch: Launch, signals: Signals) -> int:
    """Wait for a command that outlives its recording, passing on what it is sent meanwhile."""
    while launch.poll() is None:
        for number in signals.take():
            launch.signal(number)
        signals.wait([], _TICK_S)
    return launch.wait()
