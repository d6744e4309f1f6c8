"""The rows of the table: questions to a recording, each with an exact number where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from scripts.kernels.table import FAILS, OK, Result
from scripts.privileges import loads
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace


class Recorded(NamedTuple):
    """A recording, and the facts about its loads."""

    trace: Trace
    said: dict[str, int]
    """Facts that the command found out: its pid, addresses, inodes."""
    pids: dict[str, int]
    """The other recorded processes: `own` and `other` by their pids, `member` by its cgroup."""


@dataclass(frozen=True)
class Check:
    """A row."""

    title: str
    needs: tuple[str, ...]
    """Tables without which it cannot be asked."""
    expected: Any
    """The answer of a recording that has everything; None: any number above 0 is one."""
    ask: Callable[[Recorded], Any]


def _one(recorded: Recorded, query: str, *values: Any) -> Any:
    relation = recorded.trace.connection.execute(query, list(values))
    row = relation.fetchone()
    return None if row is None else row[0]


def _calls(whose: str) -> Callable[[Recorded], Any]:
    name = "getppid" if whose == "command" else "times"

    def ask(recorded: Recorded) -> Any:
        pid = recorded.said["pid"] if whose == "command" else recorded.pids[whose]
        query = "SELECT count(*) FROM syscalls WHERE name = ? AND pid = ?"
        return _one(recorded, query, name, pid)

    return ask


def _faults(kinds: str) -> Callable[[Recorded], Any]:
    def ask(recorded: Recorded) -> Any:
        query = (
            "SELECT count(DISTINCT address // 4096) FROM page_faults "
            f"WHERE pid = ? AND address >= ? AND address < ? AND kind IN ({kinds})"
        )
        said = recorded.said
        return _one(recorded, query, said["pid"], said["start"], said["end"])

    return ask


def _flushed(reason: str, file: str) -> Callable[[Recorded], Any]:
    def ask(recorded: Recorded) -> Any:
        flushes(recorded.trace)
        query = (
            "SELECT sum(pages)::INT FROM flushes "
            "WHERE reason = ? AND ino = ? AND NOT contains(rwbs, 'M')"
        )
        return _one(recorded, query, reason, recorded.said[file])

    return ask


def _of_pid(query: str) -> Callable[[Recorded], Any]:
    return lambda recorded: _one(recorded, query, recorded.said["pid"])


def _named(recorded: Recorded) -> Any:
    query = "SELECT count(*) FROM files WHERE ino IN (?, ?) AND path LIKE '%/' || ?"
    said = recorded.said
    found = [
        _one(recorded, query, said[name], said[name], name) for name in ("left", "fsynced", "read")
    ]
    return sum(found)


def _read(recorded: Recorded) -> Any:
    query = "SELECT sum(pages)::INT FROM page_cache WHERE event = 'add' AND ino = ?"
    # The file was added twice: when it was written, and when it was read.
    return _one(recorded, query, recorded.said["read"])


_SLEEPS = (
    "SELECT count(*) FROM off_cpu o JOIN syscalls s ON s.tid = o.tid AND o.ts >= s.ts "
    "AND o.ts < s.ts + s.dur_ns WHERE s.name = 'clock_nanosleep' AND o.pid = ?"
)

CHECKS = (
    Check(
        f"own command: {loads.CALLS} system calls", ("syscalls",), loads.CALLS, _calls("command")
    ),
    Check(
        f"own process (-p): {loads.OF_A_PROCESS} system calls",
        ("syscalls",),
        loads.OF_A_PROCESS,
        _calls("own"),
    ),
    Check(
        f"another user's process (-p): {loads.OF_A_PROCESS} system calls",
        ("syscalls",),
        loads.OF_A_PROCESS,
        _calls("other"),
    ),
    Check(
        f"a process in a cgroup (--cgroup): {loads.OF_A_PROCESS} system calls",
        ("syscalls",),
        loads.OF_A_PROCESS,
        _calls("member"),
    ),
    Check(
        f"{loads.FAULTS} page faults",
        ("page_faults",),
        loads.FAULTS,
        _faults("'minor', 'major', 'unknown'"),
    ),
    Check("page faults are told apart: minor", ("page_faults",), loads.FAULTS, _faults("'minor'")),
    Check(
        f"an fsync of {loads.FSYNCED} pages (file_writes, block)",
        ("file_writes", "block"),
        loads.FSYNCED,
        _flushed("fsync", "fsynced"),
    ),
    Check(
        f"a sync of {loads.LEFT} pages (writeback, dirty, block)",
        ("writeback", "dirty", "block"),
        loads.LEFT,
        _flushed("sync", "left"),
    ),
    Check(
        f"a file of {loads.READ} pages is written and read (page_cache)",
        ("page_cache",),
        2 * loads.READ,
        _read,
    ),
    Check(
        f"{loads.SLEEPS} sleeps (sched)", ("off_cpu", "syscalls"), loads.SLEEPS, _of_pid(_SLEEPS)
    ),
    Check("names of 3 files", ("files", "dirty"), 3, _named),
    Check(
        f"{loads.PHASES} phases",
        ("phases",),
        loads.PHASES,
        _of_pid("SELECT count(*) FROM phases WHERE name = 'mine' AND pid = ?"),
    ),
    Check(
        "samples: series of the machine",
        ("samples",),
        None,
        lambda r: _one(r, "SELECT count(DISTINCT name) FROM samples WHERE target IS NULL"),
    ),
    Check(
        "samples: series of own processes",
        ("samples",),
        None,
        lambda r: _series(r, "command"),
    ),
    Check(
        "samples: series of another user's process", ("samples",), None, lambda r: _series(r, "pid")
    ),
)
"""In the order of the table's rows."""


def _series(recorded: Recorded, kind: str) -> Any:
    wanted = recorded.said["pid"] if kind == "command" else recorded.pids["other"]
    names = [t["name"] for t in recorded.trace.manifest["targets"] if t.get("pid") == wanted]
    query = "SELECT count(DISTINCT name) FROM samples WHERE target = ?"
    return _one(recorded, query, names[0]) if names else 0


def answer(check: Check, recorded: Recorded) -> Result | None:
    """Returns the result of a check of a recording; None if it has not the tables."""
    if not set(check.needs) <= set(recorded.trace.manifest["tables"]):
        return None
    found = check.ask(recorded)
    if check.expected is None:
        return Result(str(found)) if found else Result("none")
    if found == check.expected:
        return Result(OK)
    return Result(
        FAILS if found else "none", f"{found} instead of {check.expected}" if found else ""
    )
