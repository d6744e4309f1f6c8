"""The processes that belong to the targets, as they change during a recording.

The kernel itself follows the children of a target's processes. Processes that join otherwise (put
into a cgroup, `docker exec` by a newer runc) are searched for, added to the filters, and listed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tracer.probes.cgroups import BY_DESCENT
from tracer.probes.clocks import ahead_of_monotonic_ns
from tracer.probes.errors import FeatureMissing, PermissionMissing
from tracer.probes.proc import read_stat
from tracer.session.capture import Capture
from tracer.session.descriptors import Descriptors
from tracer.session.joins import Joins
from tracer.store.finalize import MEMBERS
from tracer.store.listed import Lines
from tracer.store.lists import MemberFacts
from tracer.targets import Target, threads
from tracer.targets.tree import ProcessTree

_LEAST_S = 0.005
"""Least time in s between two searches: many processes may be moved at once."""
_SETTLE_ROUNDS = 20


@dataclass(frozen=True)
class _Process:
    start_ticks: int
    kernel: bool


class Members:
    """Finds the targets' processes, adds them to the filters, and lists them in the trace."""

    def __init__(
        self,
        raw: Path,
        targets: list[Target],
        capture: Capture,
        descriptors: Descriptors | None = None,
    ) -> None:
        """Makes the list, if a target can have processes that are not its own descendants.

        `descriptors` lists the open files of the processes. `close` closes it.
        """
        self._targets = targets
        self._capture = capture
        self._descriptors = descriptors
        self._seen: list[set[int]] = [set() for _ in targets]
        self._new: list[tuple[Target, int]] = []
        self._looked = 0.0
        self._others: set[int] = set()
        self._joins: Joins | None = None
        self._list: Lines | None = None
        if any(target.joined or target.kind == "daemon" for target in targets):
            self._list = Lines(raw, MEMBERS)
            if any(target.joined for target in targets):
                # Without Joins, joining processes are found a moment later.
                with contextlib.suppress(FeatureMissing, PermissionMissing):
                    self._joins = Joins()

    def __enter__(self) -> Members:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def readable(self) -> list[int]:
        """Descriptors that become readable when it is time to call `look`."""
        return [self._joins.fd] if self._joins is not None and self._joins.fd is not None else []

    @property
    def paths(self) -> Mapping[str, Mapping[int, str]]:
        """Cgroups of containers that processes entered last: by id, path by hierarchy."""
        return self._joins.paths if self._joins is not None else {}

    def made_by(self, makers: Iterable[int]) -> None:
        """Lists processes that make more of a target that has just begun."""
        now = time.monotonic_ns()
        if self._list is not None:
            self._write([(now, pid, -1, -1, 0, False) for pid in sorted(makers)])

    def first_look(self, companions: Iterable[int] = ()) -> None:
        """Lists the processes of each target and the processes that make more of them.

        `companions` are processes that record for us and belong to no target. Call this after
        process events are recorded and before the targets' events are, so that none is missed.
        """
        if self._list is None:
            return
        self._others.update(companions)
        found = self._found()
        self._capture.join(tid for _, pid, *_ in found for tid in threads(pid))
        makers: set[int] = set()
        if self._capture.follows_makers:
            makers.update(pid for target in self._targets for pid in target.makers())
        now = time.monotonic_ns()
        self._note(found)
        found += [(now, pid, -1, -1, 0, False) for pid in sorted(makers)]
        self._write([*found, (time.monotonic_ns(), 0, -1, -1, 0, False)])

    def look_at_files(self) -> None:
        """Lists the open files of the first processes. Call it once their calls are recorded."""
        if self._descriptors is not None:
            self._descriptors.first_look()

    def look(self) -> None:
        """Adds and lists the processes that have joined since the last look."""
        if self._list is None or not any(target.joined for target in self._targets):
            return
        if self._joins is not None:
            self._joins.clear()
        time.sleep(max(0.0, self._looked + _LEAST_S - time.monotonic()))
        before, self._looked = self._looked, time.monotonic()
        found = self._found(only_joined=True)
        if not found:
            return
        self._note(found)
        of_process = {pid: threads(pid) for _, pid, *_ in found}
        alone = self._capture.not_followed(tid for tids in of_process.values() for tid in tids)
        # Of a process that has ended since, nothing says that its events were let in.
        late = {pid for pid, tids in of_process.items() if alone.issuperset(tids)}
        self._let_in(late)
        now = time.monotonic_ns()
        self._write(
            [
                (now if pid in late else ns, pid, number, hierarchy, began, pid in late)
                for ns, pid, number, hierarchy, began, _ in found
            ]
        )
        if self._descriptors is not None:
            members = {pid for seen in self._seen for pid in seen}
            self._descriptors.joined(found, members, int(before * 1e9))

    def take_new(self) -> list[tuple[Target, int]]:
        """Returns the processes found since the last call, with their targets."""
        new, self._new = self._new, []
        return new

    def _note(self, found: list[MemberFacts]) -> None:
        self._new += [(self._targets[number], pid) for _, pid, number, *_ in found]

    def _let_in(self, pids: set[int]) -> None:
        known: set[int] = set()
        # Look again for threads made between the look and the filter.
        for _ in range(_SETTLE_ROUNDS):
            new = {tid for pid in pids for tid in threads(pid)} - known
            if not new:
                return
            self._capture.join(new)
            known |= new

    def _found(self, only_joined: bool = False) -> list[MemberFacts]:
        """Returns new members of the targets by start time, so parents come before children.

        With `only_joined`, leaves out the targets that no process can join.
        """
        found: list[tuple[int, MemberFacts]] = []
        ticks = os.sysconf("SC_CLK_TCK")
        slept = ahead_of_monotonic_ns(time.CLOCK_BOOTTIME)
        tree = ProcessTree()
        for number, target in enumerate(self._targets):
            if only_joined and not target.joined:
                continue
            before = time.monotonic_ns()
            members = target.members(tree)
            for pid in members.keys() - self._seen[number] - self._others:
                process = _process(pid)
                if process is not None and not process.kernel:
                    began = max(0, process.start_ticks * 1_000_000_000 // ticks - slept)
                    # A child that is made after the tree was read is made after this time, too.
                    since = tree.begun_ns if members[pid] == BY_DESCENT else before
                    entry = (since, pid, number, members[pid], began, False)
                    found.append((process.start_ticks, entry))
            self._seen[number] = set(members)
        return [entry for _, entry in sorted(found)]

    def _write(self, found: list[MemberFacts]) -> None:
        assert self._list is not None
        self._list.add(found)

    def close(self) -> None:
        """Closes the lists and removes the tracefs instance."""
        if self._descriptors is not None:
            self._descriptors.close()
        if self._list is not None:
            self._list.close()
        joins, self._joins = self._joins, None
        if joins is not None:
            joins.close()


def _process(pid: int) -> _Process | None:
    stat = read_stat(pid)
    return None if stat is None else _Process(stat.start_time, stat.of_kernel)
