"""A folder that targets mark into: which of its files come from processes of the recording."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from probes.kernel import process_start_ns
from tracer.phases.format import NOTE_SUFFIX, SUFFIX
from tracer.targets import Target

MOST_FILES = 100_000
MOST_ENTRIES = 1_000_000
"""Names looked at in one folder."""
_MOST_MAPPED = 1000
"""Files of marks that one process has mapped."""

_NAME = re.compile(
    rf"^(?P<process>(?P<pid>\d{{1,10}})-(?P<ns>\d{{1,20}}))"
    rf"(-\d+{re.escape(SUFFIX)}|{re.escape(NOTE_SUFFIX)})$"
)
_MAPPED = re.compile(rf"/(\d{{1,10}}-\d{{1,20}})-\d+{re.escape(SUFFIX)}\n$")
_OWN_PIDS = re.compile(r"^NSpid:(.*)$", re.MULTILINE)


@dataclass
class MarksFolder:
    """A folder that targets mark into, kept open so that it outlives their processes.

    It may hold files of earlier runs, also of earlier boots, with the same pids. No wall clock
    tells them apart, since a clock may be set. A file of the recording is one that a process of
    the targets has mapped at the start, or one that was not there then.
    """

    fd: int
    targets: list[Target]
    foreign: bool
    """Whether its processes count pids in a namespace of their own."""
    users: set[int] = field(default_factory=set)
    """Whose files are theirs."""
    processes: dict[int, set[int]] = field(default_factory=dict)
    """Pids of those at the start, by their own count."""
    named: set[str] = field(default_factory=set)
    """Processes, as their files are called, whose pids on this machine have been found."""
    _mapped: set[str] = field(default_factory=set)
    """Processes, as their files are called, that had files mapped at the start."""
    _before: set[str] = field(default_factory=set)
    """Others that had files here then, but could be taken for processes of the recording."""
    _full: bool = False

    def remember(self, begun_ns: int) -> bool:
        """Note what is here before the recording; True where that is too much to remember."""
        for match in mark_files(self.fd, MOST_ENTRIES):
            if int(match["pid"]) in self.processes or int(match["ns"]) >= begun_ns:
                if len(self._before) >= MOST_FILES:
                    self._full = True
                    break
                self._before.add(match["process"])
        # After that: what is mapped by then need not have been there.
        for pid in set().union(*self.processes.values()):
            self._mapped |= mapped(pid)
        return self._full

    def holds_now(self, match: re.Match[str], begun_ns: int) -> bool:
        """Whether a file comes from a process that lived at the start or has begun since."""
        process, own, ns = match["process"], int(match["pid"]), int(match["ns"])
        if process in self._mapped:
            return True
        if process in self._before or self._full:
            return match[0].endswith(NOTE_SUFFIX) and self._in_lifetime(own, ns, begun_ns)
        return own in self.processes or ns >= begun_ns

    def _in_lifetime(self, own: int, ns: int, begun_ns: int) -> bool:
        """Whether a process that lived at the start had begun at a time before it."""
        started = [process_start_ns(pid) for pid in self.processes.get(own, ())]
        return any(start is not None and start <= ns < begun_ns for start in started)


def mark_files(fd: int, most: int) -> Iterator[re.Match[str]]:
    """The names of marks and notes among the first `most` names in an open folder, matched.

    Groups: process (pid and time, as in the name), pid, ns.
    """
    with os.scandir(fd) as entries:
        for entry in itertools.islice(entries, most):
            match = _NAME.match(entry.name)
            if match:
                yield match


def mapped(pid: int) -> set[str]:
    """The processes, as their files are called, whose marks a process has mapped."""
    found: set[str] = set()
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/maps").open(errors="replace") as lines:
        for line in lines:
            match = _MAPPED.search(line)
            if match and len(found) < _MOST_MAPPED:
                found.add(match[1])
    return found


def own_pid(pid: int, process: int | None = None) -> int:
    """What a process, or a thread of `process`, is called in its innermost pid namespace.

    The pid itself where it is gone.
    """
    folder = f"/proc/{pid}" if process is None else f"/proc/{process}/task/{pid}"
    with contextlib.suppress(OSError, ValueError):
        line = _OWN_PIDS.search(Path(folder, "status").read_text(errors="replace"))
        return int(line[1].split()[-1]) if line else pid
    return pid
