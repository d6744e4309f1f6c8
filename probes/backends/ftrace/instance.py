"""A tracefs instance of the recorder. Its name contains the owner's pid and start time."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.backends.backend import all_but
from tracer.probes.errors import FeatureMissing, PermissionMissing
from tracer.probes.kernel import process_alive, process_start_time, tracefs

_PIDS_A_WRITE = 500
"""Pids per write. At 8 bytes each at most, they fit in a page, the limit of older kernels."""
_SELDOM = ("machine",)
"""Scopes whose events are rare compared with context switches."""
_NAME = re.compile(
    r"^tracer-(?P<pid>\d{1,10})-(?P<start>\d{1,20})-(?P<scope>target|machine|joins|uprobes)$"
)


class Instance:
    """One tracefs instance. `close` removes it."""

    def __init__(self, scope: str) -> None:
        """Makes the instance. Raises PermissionMissing or FeatureMissing."""
        owner = os.getpid()
        self._scope = scope
        self._systems: set[str] = set()
        self.name = f"tracer-{owner}-{process_start_time(owner)}-{scope}"
        self.path = tracefs() / "instances" / self.name
        try:
            self.path.mkdir()
        except FileExistsError:
            # Pid and start time are unique, so an earlier recording of this process left it.
            self.close()
            self.path.mkdir()
        except PermissionError:
            raise PermissionMissing(
                f"this user cannot write to {self.path.parent}", "run as root (sudo tracer ...)"
            ) from None
        except OSError as error:
            raise FeatureMissing(
                f"cannot make a tracefs instance in {self.path.parent}: {error.strerror}",
                "run `tracer doctor` to check tracefs",
            ) from None

    def write(self, file: str, text: str) -> None:
        """Writes `text` to one of the instance's files. Raises OSError."""
        fd = os.open(self.path / file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def read(self, file: str) -> str:
        """Returns the text of one of the instance's files."""
        return (self.path / file).read_text()

    def set_clock(self, clock: str) -> None:
        """Sets the trace clock. Raises FeatureMissing if the kernel does not have `clock`."""
        try:
            self.write("trace_clock", clock)
        except OSError:
            raise FeatureMissing(
                f"this kernel has no trace clock {clock!r}", "use Linux 3.17 or newer"
            ) from None

    def set_buffer(self, kib_per_cpu: int) -> None:
        """Sets the ring-buffer size of each CPU. Raises FeatureMissing if memory is too small.

        Tracing must be off: the kernel drops events during the change and does not count them.
        """
        try:
            self.write("buffer_size_kb", str(kib_per_cpu))
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise FeatureMissing(
                    f"not enough memory for a ring buffer of {kib_per_cpu} KiB per CPU",
                    "give a smaller size with -b",
                ) from None
            raise

    def wake_reader_at(self, percent: int) -> bool:
        """Makes the kernel wake pollers of a buffer that is `percent` full.

        Returns False if the kernel cannot (before Linux 5.0).
        """
        try:
            self.write("buffer_percent", str(percent))
        except OSError:
            return False
        return True

    def set_option(self, option: str, on: bool) -> bool:
        """Switches a trace option. Returns False if the kernel does not have the option."""
        try:
            self.write(f"options/{option}", "1" if on else "0")
        except FileNotFoundError:
            return False
        return True

    def has_event(self, name: str) -> bool:
        """Returns whether this kernel has the event SYSTEM:EVENT."""
        return (self.path / _folder(name) / "format").exists()

    def format_of(self, name: str) -> str:
        """Returns the text of an event's format file."""
        return self.read(f"{_folder(name)}/format")

    def enable_event(self, name: str) -> str:
        """Enables an event; returns the text of its format file."""
        self.write(f"{_folder(name)}/enable", "1")
        self._systems.add(name.partition(":")[0])
        return self.format_of(name)

    def add_stacks(self, name: str, condition: str) -> bool:
        """Has the kernel stack follow each event `name` for which the condition holds.

        Events that the instance's filters leave out have no stack. Returns False if the kernel has
        no such trigger.
        """
        try:
            self.write(f"{_folder(name)}/trigger", f"stacktrace if {condition}")
        except OSError:
            return False
        return True

    def set_pids(self, tids: Iterable[int]) -> None:
        """Traces only these threads, and their children if option event-fork is on."""
        listed = list(tids)
        if not listed:
            # An empty filter admits all threads, so the filter names a thread that is excluded.
            listed = [os.getpid()]
            self._leave_out_by_pid(listed)
        self._write_pids("set_event_pid", listed, os.O_TRUNC)

    def add_pids(self, tids: Iterable[int]) -> None:
        """Adds threads to the set that `set_pids` made."""
        self._write_pids("set_event_pid", tids, 0)

    def leave_out(self, tids: Iterable[int]) -> None:
        """Excludes these threads of the recorder.

        A pid filter costs time at every context switch of the machine. An event filter costs time
        at every event, which is less unless the events are as frequent as system calls.
        """
        listed = list(tids)
        if self._scope not in _SELDOM or not self._leave_out_by_event(listed):
            self._leave_out_by_pid(listed)

    def _leave_out_by_event(self, tids: list[int]) -> bool:
        try:
            for system in sorted(self._systems):
                self.write(f"events/{system}/filter", all_but(tids))
        except OSError:  # the filter is too long for so many threads
            return False
        return True

    def _leave_out_by_pid(self, tids: list[int]) -> None:
        with contextlib.suppress(FileNotFoundError):  # set_event_notrace_pid: kernel 5.9
            self._write_pids("set_event_notrace_pid", tids, os.O_TRUNC)

    def without(self, tids: Iterable[int]) -> set[int]:
        """Returns the threads among `tids` that are neither in the set nor children of it."""
        return set(tids) - {int(t) for t in self.read("set_event_pid").split() if t.isdecimal()}

    def _write_pids(self, file: str, tids: Iterable[int], truncate: int) -> None:
        # Without O_TRUNC the kernel adds pids. With O_APPEND Python would seek, which fails here.
        fd = os.open(self.path / file, os.O_WRONLY | truncate | os.O_CLOEXEC)
        try:
            listed = [f"{tid}\n" for tid in tids]
            # After each write the kernel waits for all CPUs (an RCU grace period), so one write
            # contains many pids.
            for first in range(0, len(listed), _PIDS_A_WRITE):
                data = "".join(listed[first : first + _PIDS_A_WRITE]).encode()
                while data:
                    data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def start(self) -> None:
        """Starts to record events."""
        self.write("tracing_on", "1")

    def stop(self) -> None:
        """Stops recording events."""
        self.write("tracing_on", "0")

    def cpu_stats(self, cpu: int) -> dict[str, int]:
        """Returns the kernel's counts for one CPU's buffer: entries, overrun, dropped events ..."""
        stats = {}
        for line in self.read(f"per_cpu/cpu{cpu}/stats").splitlines():
            key, _, value = line.partition(":")
            if value.strip().isdigit():
                stats[key.strip()] = int(value)
        return stats

    def close(self) -> None:
        """Removes the instance. All its files must be closed first."""
        remove(self.path)


def _folder(event: str) -> str:
    return f"events/{event.replace(':', '/')}"


@dataclass(frozen=True)
class Leftover:
    """An instance that a `tracer` process made. `owner_alive`: the process still runs."""

    path: Path
    owner: int
    owner_alive: bool


def ours() -> Iterator[Leftover]:
    """Yields all instances that `tracer` processes made, never those of other programs.

    Raises PermissionMissing if this user cannot list the instances.
    """
    folder = tracefs() / "instances"
    try:
        entries = sorted(folder.iterdir())
    except PermissionError:
        raise PermissionMissing(f"this user cannot read {folder}", "run as root") from None
    for path in entries:
        match = _NAME.match(path.name)
        if match:
            pid = int(match["pid"])
            yield Leftover(path, pid, process_alive(pid, int(match["start"])))


def remove(path: Path, patience_s: float = 1.0) -> None:
    """Stops an instance and removes it. Waits up to `patience_s` for readers to close it.

    Raises PermissionMissing or FeatureMissing if the instance cannot be removed.
    """
    with contextlib.suppress(OSError):
        (path / "tracing_on").write_text("0")
    deadline = time.monotonic() + patience_s
    while True:
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except PermissionError:
            raise PermissionMissing(f"this user cannot remove {path}", "run as root") from None
        except OSError as error:
            # ENODEV: another process is removing it at the same time.
            waits = error.errno in (errno.EBUSY, errno.ENODEV) and time.monotonic() < deadline
            if not waits:
                raise FeatureMissing(
                    f"{path} cannot be removed: {error.strerror}",
                    "end the programs that use it (`fuser -v` lists them), then run `tracer clean`",
                ) from None
            time.sleep(0.02)
