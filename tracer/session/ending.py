"""The end of a recording and of its command."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tracer.free_space import free_bytes, spare_bytes
from tracer.session.arrivals import Arrivals
from tracer.session.capture import Capture
from tracer.session.failures import SPACE, ended_by_error
from tracer.session.launch import Launch
from tracer.session.marks import Marks
from tracer.session.members import Members
from tracer.session.newcomers import Newcomers
from tracer.session.online import OnlineCpus
from tracer.session.options import Listener, Options, Status
from tracer.session.perf import PerfTools
from tracer.session.python_stacks import PythonStacks
from tracer.session.sampler import Sampler
from tracer.session.signals import Signals
from tracer.session.summary import Summary
from tracer.store import manifest as manifests
from tracer.store.finalize import RAW
from tracer.store.manifest import Manifest
from tracer.targets import Target
from tracer.targets.containers import AwaitedContainer

_TICK_S = 0.25
_GRACE_S = 10.0
"""Time in s that a command has to end after SIGTERM."""
_TABLES_PART = 8
"""The tables of a recording take less than this part of its captured bytes, and `_END_BYTES`."""
_END_BYTES = 256 << 10
"""Bytes for the smallest tables, two manifests, and what is captured until the next look."""


@dataclass
class Running:
    """All parts of a recording while events are recorded."""

    options: Options
    place: Path
    """Path of the trace directory (`Output.place`)."""
    targets: list[Target]
    launch: Launch | None
    capture: Capture
    marks: Marks
    perf: PerfTools
    members: Members
    summary: Summary | None
    sampler: Sampler
    stacks: PythonStacks
    arrivals: Arrivals
    newcomers: Newcomers
    online: OnlineCpus
    without_uprobes: dict[str, Counter[str]]
    """Counts of libraries that have no uprobes, by probe (`store.left_out`)."""
    manifest: Manifest
    """The manifest, which is written again for each awaited container that arrives."""
    signals: Signals
    listener: Listener


def until_the_end(running: Running) -> str:
    """Waits until something ends the recording. Returns the reason (manifest key `ended_by`)."""
    options, targets = running.options, running.targets
    perf, members, signals = running.perf, running.members, running.signals
    drain = running.capture.drain
    assert drain is not None
    begun = time.monotonic()
    gone, gone_since = "", 0.0
    least = _bytes_to_leave(running.place)
    with _Ends(targets) as ends:
        while True:
            members.look()
            _let_in(running)
            running.newcomers.look()
            running.marks.joined(members.take_new())
            running.marks.look()
            running.online.look(running.place / RAW)
            if running.summary is not None:
                running.summary.look()
            elapsed = time.monotonic() - begun
            if signals.received is not None:
                return gone or "signal"
            failure = drain.failure or running.sampler.failure or running.stacks.failure
            if failure is not None:
                return ended_by_error(failure)
            written = drain.written + perf.written + running.sampler.written
            if drain.full or (options.max_bytes and written >= options.max_bytes):
                return "size"
            if least and free_bytes(running.place) < least + written // _TABLES_PART:
                return SPACE
            if not gone and (gone := _gone(running, ends)):
                gone_since = elapsed
            if gone and elapsed - gone_since >= options.linger_s:
                return gone
            if options.duration_s is not None and elapsed >= options.duration_s:
                return "duration"
            running.listener.tick(Status(elapsed, written))
            left = _TICK_S
            if options.duration_s is not None:
                left = min(left, options.duration_s - elapsed)
            if gone:
                left = min(left, gone_since + options.linger_s - elapsed)
            rest = running.marks.rest_s
            left = left if rest is None else min(left, rest)
            readable = [*members.readable, *running.marks.readable, *running.arrivals.readable]
            readable += running.newcomers.readable
            signals.wait([*ends.awaited, *readable], left)


def _bytes_to_leave(place: Path) -> int:
    """Returns the free bytes of the disk below which the recording ends.

    A recording begins however little is free, and then takes half of it. 0: no end, since only
    blocks that are kept for root were left at its begin.
    """
    return min(spare_bytes(place) + _END_BYTES, free_bytes(place) // 2)


def _let_in(running: Running) -> None:
    """Lets awaited containers into the recording, as soon as something is known of them."""
    raw, manifest = running.place / RAW, running.manifest
    changed = running.arrivals.look(running.members.paths)
    news = bool(changed)
    for number, target in enumerate(running.targets):
        if not isinstance(target, AwaitedContainer):
            continue
        if target in changed:
            running.sampler.arrived(number, target)
        # perf may not be able to begin at the first look, and nothing tells when it is.
        counting = running.perf.arrived(raw, number, target)
        if counting is not None:
            news = True
            running.capture.leave_out([counting])
        if target.new and target.known is not None:
            target.new = False
            running.members.made_by(target.makers())
            running.marks.arrived(target, target.pid, target.environment)
            others = [c for c in manifest.get("containers", []) if c["id"] != target.known["id"]]
            manifest["containers"] = [*others, {**target.known, "arrived": True}]
    if not news:
        return
    running.members.look()
    manifest["targets"] = [target.describe() for target in running.targets]
    manifests.write(running.place, manifest)


def _gone(running: Running, ends: _Ends) -> str:
    """Returns "command" or "target" once there is nothing left to record, else ""."""
    if running.launch is not None:
        return "command" if running.launch.poll() is not None else ""
    if running.options.machine or running.options.baseload:
        return ""
    return "target" if ends.all() else ""


class _Ends:
    """Watches the ends of targets. Pidfds report the ends of single processes at no cost."""

    def __init__(self, targets: list[Target]) -> None:
        self._others: list[Target] = []
        self._pidfds: list[int] = []
        for target in targets:
            fd = None
            if target.ends_with is not None:
                with contextlib.suppress(OSError):  # it has just ended, or there are no pidfds
                    fd = os.pidfd_open(target.ends_with)
            if fd is not None and target.alive:
                self._pidfds.append(fd)
                continue
            self._others.append(target)
            if fd is not None:  # the pid now belongs to another process
                os.close(fd)

    def __enter__(self) -> _Ends:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._pidfds:
            os.close(fd)

    @property
    def awaited(self) -> list[int]:
        """Pidfds of targets that still run. A pidfd becomes readable when its process ends."""
        poll = select.poll()
        for fd in self._pidfds:
            poll.register(fd, select.POLLIN)
        ended = {fd for fd, _ in poll.poll(0)} if self._pidfds else set()
        return [fd for fd in self._pidfds if fd not in ended]

    def all(self) -> bool:
        """Returns whether every target has ended."""
        return not self.awaited and not any(target.alive for target in self._others)


def end_command(launch: Launch, signals: Signals) -> None:
    """Ends the command with the signal that ended the recording, or else with SIGTERM."""
    number = signals.received or signal.SIGTERM
    deadline = time.monotonic() + _GRACE_S
    if number == signal.SIGINT:
        # On a terminal, Ctrl-C also reaches the command.
        while launch.poll() is None and time.monotonic() < deadline - _GRACE_S + 0.3:
            time.sleep(0.01)
    launch.signal(number)
    while launch.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    launch.signal(signal.SIGKILL)
    launch.wait()


def let_end(launch: Launch, signals: Signals) -> int:
    """Waits for a command that outlives its recording, and forwards signals to it."""
    while launch.poll() is None:
        for number in signals.take():
            launch.signal(number)
        signals.wait([], _TICK_S)
    return launch.wait()
