"""Which processes belong to the targets, as it changes while they are recorded.

What a target's own processes make, the kernel follows by itself. Processes that join otherwise
(put into a cgroup, `docker exec` by a newer runc) are looked for, let in, and written down.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from probes.errors import FeatureMissing, PermissionMissing
from probes.proc import read_stat
from tracer.session.capture import Capture
from tracer.session.joins import Joins
from tracer.store.finalize import MEMBERS
from tracer.store.listed import Lines
from tracer.store.lists import MemberFacts
from tracer.targets import Target, threads

_LEAST_S = 0.005
"""Between two looks: many processes may be moved at once."""
_SETTLE_ROUNDS = 20
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in include/linux/sched.h"""


@dataclass(frozen=True)
class _Process:
    start_ticks: int
    kernel: bool


class Members:
    """Looks for the targets' processes, lets them in, and writes them to a file of the trace."""

    def __init__(self, raw: Path, targets: list[Target], capture: Capture) -> None:
        """Make the file, where one of the targets has more than its own descendants."""
        self._targets = targets
        self._capture = capture
        self._seen: list[set[int]] = [set() for _ in targets]
        self._looked = 0.0
        self._others: set[int] = set()
        self._joins: Joins | None = None
        self._list: Lines | None = None
        if any(target.joined or target.kind == "daemon" for target in targets):
            self._list = Lines(raw, MEMBERS)
            if any(target.joined for target in targets):
                # Without it joining processes are found a moment later.
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
        """What can be read when it is time to look."""
        return [self._joins.fd] if self._joins is not None and self._joins.fd is not None else []

    def first_look(self, companions: Iterable[int] = ()) -> None:
        """Write down who belongs to each target, and who makes processes for one.

        `companions` are processes that record for us: they belong to no target. Before it
        process events are let in, after it those of the targets: then nobody is late.
        """
        if self._list is None:
            return
        self._others.update(companions)
        found = self._found(self._targets)
        self._capture.join(tid for _, pid, *_ in found for tid in threads(pid))
        makers: set[int] = set()
        if self._capture.follows_makers:
            makers.update(pid for target in self._targets for pid in target.makers())
        now = time.monotonic_ns()
        found += [(now, pid, -1, -1, 0, False) for pid in sorted(makers)]
        self._write([*found, (time.monotonic_ns(), 0, -1, -1, 0, False)])

    def look(self) -> None:
        """Let in and write down who has joined since the last look."""
        if self._list is None or not any(target.joined for target in self._targets):
            return
        if self._joins is not None:
            self._joins.clear()
        time.sleep(max(0.0, self._looked + _LEAST_S - time.monotonic()))
        self._looked = time.monotonic()
        found = self._found([target for target in self._targets if target.joined])
        if not found:
            return
        of_process = {pid: threads(pid) for _, pid, *_ in found}
        alone = self._capture.not_followed(tid for tids in of_process.values() for tid in tids)
        late = {pid for pid, tids in of_process.items() if tids and alone.issuperset(tids)}
        self._let_in(late)
        now = time.monotonic_ns()
        self._write(
            [
                (now if pid in late else ns, pid, number, hierarchy, began, pid in late)
                for ns, pid, number, hierarchy, began, _ in found
            ]
        )

    def _let_in(self, pids: set[int]) -> None:
        known: set[int] = set()
        # A thread made between the look and the filter is found by looking again.
        for _ in range(_SETTLE_ROUNDS):
            new = {tid for pid in pids for tid in threads(pid)} - known
            if not new:
                return
            self._capture.join(new)
            known |= new

    def _found(self, targets: list[Target]) -> list[MemberFacts]:
        """New members of the targets, in the order of their start: makers before what they made."""
        found: list[tuple[int, MemberFacts]] = []
        ticks = os.sysconf("SC_CLK_TCK")
        slept = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        for target in targets:
            number = self._targets.index(target)
            before = time.monotonic_ns()
            members = target.members()
            for pid in members.keys() - self._seen[number] - self._others:
                process = _process(pid)
                if process is not None and not process.kernel:
                    began = max(0, process.start_ticks * 1_000_000_000 // ticks - slept)
                    entry = (before, pid, number, members[pid], began, False)
                    found.append((process.start_ticks, entry))
            self._seen[number] = set(members)
        return [entry for _, entry in sorted(found)]

    def _write(self, found: list[MemberFacts]) -> None:
        assert self._list is not None
        self._list.add(found)

    def close(self) -> None:
        """Close the list and remove the tracefs instance."""
        if self._list is not None:
            self._list.close()
        joins, self._joins = self._joins, None
        if joins is not None:
            joins.close()


def _process(pid: int) -> _Process | None:
    stat = read_stat(pid)
    return None if stat is None else _Process(stat.start_time, bool(stat.flags & _KERNEL_THREAD))
