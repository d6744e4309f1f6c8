"""The target of each process over time: by descent and by cgroup.

A process belongs as its first thread does; threads that are moved alone do not count. A child
begins with its parent's slots (`slots.py`); a move into a cgroup clears the slots of that
hierarchy and sets those of the cgroups that it is a move into.

The kernel's events tell of moves as they happen. A child that is made right within another
cgroup (clone3 with CLONE_INTO_CGROUP) raises none: there the recorder's own looks tell, and, of
a container's shim, that what it makes so is that container's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.timeline import Batch
from tracer.probes.cgroups import BY_DESCENT, container_id
from tracer.probes.limits import PID_LIMIT
from tracer.probes.loss import Gap
from tracer.probes.rows import columns
from tracer.probes.rows.slots import NOBODY, Slots

CLONE_INTO_CGROUP = 1 << 33
"""include/uapi/linux/sched.h"""
_START_SLACK_NS = 20_000_000
"""A process's start is known to a clock tick."""
_MAX_PATH = 4096
_STREAM = "joins"
_ALL_CPUS = -1

Thread = tuple[int, int, int | None, str, str | None]
"""A thread at the start: (tid, pid, ppid, comm, cgroup path)"""
Finding = tuple[int, int, int, int, int, bool]
"""A finding of the recorder's looks, as in `tracer.store.lists.MemberFacts`."""


class Cause(NamedTuple):
    """The cause of a process's move: its time, the recorder's finding, the new cgroup."""

    ts: int
    finding: Finding | None
    path: str | None
    followed: bool = False
    """True if a look has found that the process's events were let in before."""


@dataclass
class Moves:
    """Changes of processes' slots within a batch, each made before the event of its row."""

    row: NDArray[np.int64]
    tid: NDArray[np.int32]
    clear: NDArray[np.uint64]
    """Slots to clear, and to set, as words: one row a move."""
    set: NDArray[np.uint64]
    causes: list[Cause]
    target: NDArray[np.int16] = field(init=False)
    """Once made: the target of the process; -1: it was a thread alone."""
    followed: NDArray[np.bool_] = field(init=False)
    """Once made: whether the process's events were let in before."""

    def __post_init__(self) -> None:
        self.target = np.full(len(self.row), -1, np.int16)
        self.followed = np.zeros(len(self.row), np.bool_)


_Move = tuple[int, int, int, int, Cause]
"""(row, thread, slots to clear, slots to set, cause)"""


class Membership:
    """The targets of processes at the start, and their changes."""

    def __init__(
        self,
        targets: Sequence[Mapping[str, Any]],
        threads: Sequence[Thread],
        findings: Sequence[Finding],
        formats: Mapping[str, EventFormat],
        recorder: int | None = None,
        all_captured: bool = False,
    ) -> None:
        """`targets` of the manifest, `threads` at the start, `findings` in order of time.

        The recorder itself belongs to no target, whatever cgroup it is in. `all_captured`: every
        process's events are there.
        """
        self._recorder = -1 if recorder is None else recorder
        kinds = {target["kind"] for target in targets}
        self.targets = targets
        wide = all_captured or bool(kinds & {"container", "cgroup", "daemon"})
        self.exact = wide and "machine" not in kinds
        """True if more is captured than wanted: events of no target are then dropped."""
        self.slots = Slots(targets)
        self._all_captured = all_captured
        self.gaps: list[Gap] = []
        """Times from which processes had joined until their events were captured."""
        self._waiting: dict[int, int] = {}
        """Processes whose events are not let in yet, since when."""
        self._let_in = next((f[0] for f in findings if not f[1]), 0)
        self._findings = [finding for finding in findings if finding[1]]
        self._next = 0
        self._of_pid: dict[int, list[Finding]] = {}
        for finding in self._findings:
            if finding[2] >= 0:
                self._of_pid.setdefault(finding[1], []).append(finding)
        self._attach = with_fields(
            formats, "cgroup:cgroup_attach_task", "dst_root", "pid", "dst_path"
        )
        self._newtask = with_fields(formats, "task:task_newtask", "pid", "clone_flags")
        self._exit = with_fields(formats, "sched:sched_process_exit")
        self.start = self._at_the_start(threads)
        """Slots of the processes that belong to a target by descent, at the start."""

    def _at_the_start(self, threads: Sequence[Thread]) -> dict[int, int]:
        children: dict[int | None, list[int]] = {}
        cgroups: dict[int, str | None] = {}
        for tid, pid, ppid, _, cgroup in threads:
            if tid == pid:
                children.setdefault(ppid, []).append(pid)
                cgroups[pid] = cgroup
        roots: dict[int, int] = {}
        daemons = set()
        for number, target in enumerate(self.targets, 1):
            slots = self.slots.of(number, BY_DESCENT)
            for pid in target.get("processes", [target["pid"]]) if slots else ():
                roots[pid] = roots.get(pid, 0) | slots | self.slots.followed
                if target["kind"] == "daemon":
                    daemons.add(pid)
                    self.slots.daemon_runs_in(container_id(cgroups.get(target["pid"])))
        # A process that is a target of its own is not its ancestor's.
        found = dict(roots)
        for root, slots in roots.items():
            own = container_id(cgroups.get(root))
            waiting = list(children.get(root, ()))
            while waiting:
                pid = waiting.pop()
                elsewhere = container_id(cgroups.get(pid)) not in (None, own)
                if pid not in found and not (root in daemons and elsewhere):
                    found[pid] = slots
                    waiting += children.get(pid, ())
        return found

    def first_target(self, pid: int) -> int:
        """The target of a process at the start, or NOBODY."""
        return self.slots.target(self.start.get(pid, 0))

    def moves(self, batch: Batch) -> Moves:
        """Returns the moves of processes within a batch, in order; for a batch without events, all
        that are left."""
        found = [*self._attached(batch), *self._made_inside(batch), *self._looked(batch)]
        found.sort(key=lambda move: move[0])
        words = self.slots.words
        clear = np.zeros((len(found), words), np.uint64)
        into = np.zeros((len(found), words), np.uint64)
        for n, (_, _, cleared, given, _) in enumerate(found):
            clear[n], into[n] = self.slots.as_words(cleared), self.slots.as_words(given)
        return Moves(
            np.array([move[0] for move in found], np.int64),
            np.array([move[1] for move in found], np.int32),
            clear,
            into,
            [move[4] for move in found],
        )

    def _attached(self, batch: Batch) -> Iterator[_Move]:
        """Moves by the kernel's own word."""
        if self._attach is None:
            return
        rows = np.flatnonzero(batch.type == self._attach.id)
        places = np.arange(len(rows))
        roots, known = columns.integers(batch, rows, self._attach.field("dst_root"))
        tids, known_too = columns.integers(batch, rows, self._attach.field("pid"))
        part = (rows, places, self._attach.field("dst_path"))
        paths = columns.text(batch, [part], len(rows), _MAX_PATH)
        known &= known_too & (tids >= 0) & (tids < PID_LIMIT) & (tids != self._recorder)
        known &= paths.is_valid().to_numpy(False)
        for n in np.flatnonzero(known):
            row, path = int(rows[n]), paths[int(n)].as_py()
            clear, into = self.slots.entered(int(roots[n]), path)
            if clear | into:
                yield row, int(tids[n]), clear, into, Cause(int(batch.ts[row]), None, path)

    def _made_inside(self, batch: Batch) -> Iterator[_Move]:
        """Children made within another cgroup, that a look has found there since."""
        if self._newtask is None or not self._of_pid:
            return
        rows = np.flatnonzero(batch.type == self._newtask.id)
        flags, known = columns.integers(batch, rows, self._newtask.field("clone_flags"))
        inside = known & (flags & CLONE_INTO_CGROUP != 0)
        tids, known = columns.integers(batch, rows, self._newtask.field("pid"))
        for n in np.flatnonzero(inside & known):
            row, tid = int(rows[n]), int(tids[n])
            ts = int(batch.ts[row])
            for finding in self._of_pid.get(tid, ()):
                _, _, target, hierarchy, began, late = finding
                if hierarchy != BY_DESCENT and abs(began - ts) <= _START_SLACK_NS:
                    into = self.slots.of(target + 1, hierarchy)
                    path = self._path(target, hierarchy)
                    yield row + 1, tid, 0, into, Cause(ts, None, path, followed=not late)
                    break

    def _looked(self, batch: Batch) -> Iterator[_Move]:
        """Moves that the recorder's looks tell of."""
        while self._next < len(self._findings):
            finding = self._findings[self._next]
            ts, pid, target, hierarchy, _, _ = finding
            if len(batch) and ts > batch.ts[-1]:
                return
            self._next += 1
            into = self.slots.followed
            if target < 0:
                into |= self._making(pid)
            elif hierarchy != BY_DESCENT or pid not in self.start:
                into |= self.slots.of(target + 1, hierarchy)
            row = int(np.searchsorted(batch.ts, ts))
            yield row, pid, 0, into, Cause(ts, finding, self._path(target, hierarchy))

    def _making(self, pid: int) -> int:
        return sum(
            self.slots.maker_of(number)
            for number, target in enumerate(self.targets, 1)
            if pid in target.get("makers", ())
        )

    def _path(self, target: int, hierarchy: int) -> str | None:
        if not 0 <= target < len(self.targets):
            return None
        cgroups = self.targets[target].get("cgroups", ())
        return next((c["path"] for c in cgroups if c["hierarchy"] == hierarchy), None)

    def note(self, batch: Batch, moves: Moves) -> None:
        """Find, of moves that were made, whose events were not let in when they joined."""
        if not self.exact or self._all_captured:
            return
        for n, cause in enumerate(moves.causes):
            tid = int(moves.tid[n])
            if cause.finding is not None:
                since = self._waiting.pop(tid, None)
                # A look may come between a fork and its being followed: then nothing was missed.
                if cause.finding[5] and not moves.followed[n]:
                    if since is None:
                        since = max(self._let_in, cause.finding[4])
                    self._gap(since, cause.ts)
            elif (
                moves.target[n] > NOBODY
                and not (moves.followed[n] or cause.followed)
                and cause.ts >= self._let_in
            ):
                self._waiting.setdefault(tid, cause.ts)
        if self._waiting and self._exit is not None:
            rows = np.flatnonzero(batch.type == self._exit.id)
            for row in rows[np.isin(batch.tid[rows], list(self._waiting))]:
                since = self._waiting.get(int(batch.tid[row]))
                if since is not None and since <= batch.ts[row]:
                    self._gap(self._waiting.pop(int(batch.tid[row])), int(batch.ts[row]))
        if not len(batch):
            for since in self._waiting.values():
                self._gap(since, None)
            self._waiting.clear()

    def _gap(self, start: int, end: int | None) -> None:
        cause = "joined before it was followed"
        self.gaps.append(Gap(_STREAM, _ALL_CPUS, start, end, None, cause))


def with_fields(formats: Mapping[str, EventFormat], name: str, *fields: str) -> EventFormat | None:
    """The format of an event, if it is there and has these fields."""
    found = formats.get(name)
    return found if found is not None and set(fields) <= found.fields.keys() else None
