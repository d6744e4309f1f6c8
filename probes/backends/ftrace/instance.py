"""A tracefs instance of our own: named for its owner, filtered, clocked, removed at the end."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from probes.backends.backend import all_but
from probes.errors import FeatureMissing, PermissionMissing
from probes.kernel import process_alive, process_start_time, tracefs

_PIDS_A_WRITE = 500
"""At most 8 bytes each: less than the page that older kernels take at a time."""
_SELDOM = ("machine",)
"""Scopes whose events are seldom, as against switches of threads."""
_NAME = re.compile(
    r"^tracer-(?P<pid>\d{1,10})-(?P<start>\d{1,20})-(?P<scope>target|machine|joins|uprobes)$"
)


class Instance:
    """One tracefs instance. `close` removes it."""

    def __init__(self, scope: str) -> None:
        """Make the instance. Raises PermissionMissing or FeatureMissing."""
        owner = os.getpid()
        self._scope = scope
        self._systems: set[str] = set()
        self.name = f"tracer-{owner}-{process_start_time(owner)}-{scope}"
        self.path = tracefs() / "instances" / self.name
        try:
            self.path.mkdir()
        except FileExistsError:
            # Left by a process that had our pid and start time: impossible but for a restart
            # of ours in one process. It is ours to remove.
            self.close()
            self.path.mkdir()
        except PermissionError:
            raise PermissionMissing(
                f"{self.path.parent} may not be written to", "run as root (sudo tracer ...)"
            ) from None
        except OSError as error:
            raise FeatureMissing(
                f"no tracefs instance can be made in {self.path.parent}: {error.strerror}",
                "see `tracer doctor`",
            ) from None

    def write(self, file: str, text: str) -> None:
        """Write `text` to one of the instance's files; OSError passes through."""
        fd = os.open(self.path / file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def read(self, file: str) -> str:
        """The text of one of the instance's files."""
        return (self.path / file).read_text()

    def set_clock(self, clock: str) -> None:
        """Use trace clock `clock`; FeatureMissing where the kernel has none such."""
        try:
            self.write("trace_clock", clock)
        except OSError:
            raise FeatureMissing(
                f"this kernel has no trace clock {clock!r}", "a kernel of 3.17 or newer has it"
            ) from None

    def set_buffer(self, kib_per_cpu: int) -> None:
        """Size the ring buffer of each CPU; FeatureMissing where memory does not suffice.

        Not while events are let in: the kernel keeps them out meanwhile, and counts none.
        """
        try:
            self.write("buffer_size_kb", str(kib_per_cpu))
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise FeatureMissing(
                    f"no memory for a ring buffer of {kib_per_cpu} KiB a CPU",
                    "give a smaller one with -b",
                ) from None
            raise

    def wake_reader_at(self, percent: int) -> bool:
        """Wake who polls a buffer once it is so full; False: this kernel cannot (5.0)."""
        try:
            self.write("buffer_percent", str(percent))
        except OSError:
            return False
        return True

    def set_option(self, option: str, on: bool) -> bool:
        """Switch a trace option; False where this kernel has no such option."""
        try:
            self.write(f"options/{option}", "1" if on else "0")
        except FileNotFoundError:
            return False
        return True

    def has_event(self, name: str) -> bool:
        """Whether this kernel has the event SYSTEM:EVENT."""
        return (self.path / "events" / name.replace(":", "/") / "format").exists()

    def enable_event(self, name: str) -> str:
        """Switch an event on; returns the text of its format file."""
        folder = f"events/{name.replace(':', '/')}"
        self.write(f"{folder}/enable", "1")
        self._systems.add(name.partition(":")[0])
        return self.read(f"{folder}/format")

    def set_pids(self, tids: Iterable[int]) -> None:
        """Trace only these threads, and children by option event-fork."""
        listed = list(tids)
        if not listed:
            # An empty filter would let everything through: that of a thread that is left out.
            listed = [os.getpid()]
            self._leave_out_by_pid(listed)
        self._write_pids("set_event_pid", listed, os.O_TRUNC)

    def add_pids(self, tids: Iterable[int]) -> None:
        """Add threads to what `set_pids` set."""
        self._write_pids("set_event_pid", tids, 0)

    def leave_out(self, tids: Iterable[int]) -> None:
        """Do not trace these threads of the recorder.

        A filter by pid costs at each switch of threads, whosever they are; one of events at each
        event: less, but for those as frequent as system calls.
        """
        listed = list(tids)
        if self._scope not in _SELDOM or not self._leave_out_by_event(listed):
            self._leave_out_by_pid(listed)

    def _leave_out_by_event(self, tids: list[int]) -> bool:
        try:
            for system in sorted(self._systems):
                self.write(f"events/{system}/filter", all_but(tids))
        except OSError:  # more threads than a filter has room for
            return False
        return True

    def _leave_out_by_pid(self, tids: list[int]) -> None:
        with contextlib.suppress(FileNotFoundError):  # set_event_notrace_pid: kernel 5.9
            self._write_pids("set_event_notrace_pid", tids, os.O_TRUNC)

    def without(self, tids: Iterable[int]) -> set[int]:
        """Those of these threads that are not traced, neither by `set_pids` nor as children."""
        return set(tids) - {int(t) for t in self.read("set_event_pid").split() if t.isdecimal()}

    def _write_pids(self, file: str, tids: Iterable[int], truncate: int) -> None:
        # Without O_TRUNC the kernel adds; O_APPEND would make Python seek, which it refuses.
        fd = os.open(self.path / file, os.O_WRONLY | truncate | os.O_CLOEXEC)
        try:
            listed = [f"{tid}\n" for tid in tids]
            # Many a write: the kernel waits for all CPUs (an RCU grace period) after each.
            for first in range(0, len(listed), _PIDS_A_WRITE):
                data = "".join(listed[first : first + _PIDS_A_WRITE]).encode()
                while data:
                    data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def start(self) -> None:
        """Let events in."""
        self.write("tracing_on", "1")

    def stop(self) -> None:
        """Let no more events in."""
        self.write("tracing_on", "0")

    def cpu_stats(self, cpu: int) -> dict[str, int]:
        """The kernel's own counts for one CPU's buffer: entries, overrun, dropped events, ..."""
        stats = {}
        for line in self.read(f"per_cpu/cpu{cpu}/stats").splitlines():
            key, _, value = line.partition(":")
            if value.strip().isdigit():
                stats[key.strip()] = int(value)
        return stats

    def close(self) -> None:
        """Remove the instance. All its files must be closed."""
        remove(self.path)


@dataclass(frozen=True)
class Leftover:
    """An instance by our naming, and whether its owner still lives."""

    path: Path
    owner: int
    owner_alive: bool


def ours() -> Iterator[Leftover]:
    """Every instance that a `tracer` made. Foreign instances are never named."""
    folder = tracefs() / "instances"
    try:
        entries = sorted(folder.iterdir())
    except PermissionError:
        raise PermissionMissing(f"{folder} may not be read", "run as root") from None
    for path in entries:
        match = _NAME.match(path.name)
        if match:
            pid = int(match["pid"])
            yield Leftover(path, pid, process_alive(pid, int(match["start"])))


def remove(path: Path, patience_s: float = 1.0) -> None:
    """Switch an instance off and remove it; waits for readers that are still closing."""
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
            raise PermissionMissing(f"{path} may not be removed", "run as root") from None
        except OSError as error:
            # ENODEV: somebody else is removing it at this moment.
            waits = error.errno in (errno.EBUSY, errno.ENODEV) and time.monotonic() < deadline
            if not waits:
                raise FeatureMissing(
                    f"{path} cannot be removed: {error.strerror}",
                    "close what reads it (`fuser -v` names it), then run `tracer clean`",
                ) from None
            time.sleep(0.02)
