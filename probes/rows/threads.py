"""The processes of threads: thread ids to process ids, as they change over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.timeline import Batch, Move
from tracer.probes.compiled import compiled
from tracer.probes.limits import PID_LIMIT
from tracer.probes.rows import columns
from tracer.probes.rows.membership import CLONE_INTO_CGROUP, Membership, with_fields
from tracer.probes.rows.slots import NOBODY
from tracer.probes.schema import Scope

CLONE_THREAD = 0x10000
CLONE_PARENT = 0x8000
"""include/uapi/linux/sched.h"""


class Threads:
    """Resolves `Batch.pid`, marks what a command did before its exec, and whose target's it is."""

    def __init__(
        self,
        snapshot: Iterable[tuple[int, int]],
        formats: Mapping[str, EventFormat],
        launched: int | None,
        membership: Membership,
    ) -> None:
        """`snapshot` has (tid, pid) of all threads at the start; `launched` is the command."""
        self._membership = membership
        slots = membership.slots
        self._process = np.zeros(PID_LIMIT, np.int32)
        # By process; untouched pages cost no memory.
        self._slots = np.zeros((PID_LIMIT, slots.words), np.uint64)
        self._target = np.zeros(PID_LIMIT, np.int16)
        for tid, pid in snapshot:
            if 0 <= tid < PID_LIMIT:
                self._process[tid] = pid
        for pid, held in membership.start.items():
            if 0 <= pid < PID_LIMIT:
                self._slots[pid] = slots.as_words(held)
                self._target[pid] = slots.target(held)
        self._newtask = with_fields(formats, "task:task_newtask", "pid", "clone_flags")
        execs = formats.get("sched:sched_process_exec")
        self._exec = execs.id if execs else -1
        # Without exec events nothing says where the launch ends: then all of it is kept.
        self._launching = launched if launched is not None and self._exec >= 0 else -1

    def resolve(self, batch: Batch) -> None:
        """Fill `batch.pid`, `launching`, `target`, `wanted` and `moves`."""
        batch.pid = np.empty(len(batch), np.int32)
        batch.launching = np.zeros(len(batch), np.bool_)
        batch.target = np.zeros(len(batch), np.int16)
        if any(gap.of_scope(Scope.MACHINE) for gap in batch.gaps):
            # The exec itself may be lost: better the launch among the command's events than none.
            self._launching = -1
        slots = self._membership.slots
        moves = self._membership.moves(batch)
        made = self._made(batch)
        self._launching = _resolve(
            batch.type,
            batch.tid,
            self._process,
            *made,
            self._exec,
            self._launching,
            self._slots,
            self._target,
            slots.of_target,
            slots.kept_inside,
            slots.making,
            slots.making_gives,
            slots.as_words(slots.followed),
            moves.row,
            moves.tid,
            moves.clear,
            moves.set,
            moves.target,
            moves.followed,
            batch.pid,
            batch.launching,
            batch.target,
        )
        self._membership.note(batch, moves)
        batch.moves = [
            Move(int(moves.row[n]), int(moves.tid[n]), int(moves.target[n]), cause.path)
            for n, cause in enumerate(moves.causes)
            if moves.target[n] >= 0
        ]
        if self._membership.exact:
            batch.wanted = batch.target != NOBODY

    def _made(self, batch: Batch) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """(row, thread made, clone flags) of each newtask event that tells both."""
        if self._newtask is None:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
        rows = np.flatnonzero(batch.type == self._newtask.id)
        children, known = columns.integers(batch, rows, self._newtask.field("pid"))
        flags, known_too = columns.integers(batch, rows, self._newtask.field("clone_flags"))
        known &= known_too & (children > 0) & (children < PID_LIMIT)
        return rows[known], children[known], flags[known]


@compiled
def _target_of(slots: Any, of_target: Any) -> int:
    """The target of the lowest slot that says one."""
    for n in range(len(of_target)):
        if slots[n // 64] >> np.uint64(n % 64) & np.uint64(1):
            return int(of_target[n])
    return 0


@compiled
def _move(
    n: int,
    process: Any,
    slots: Any,
    target: Any,
    of_target: Any,
    followed: Any,
    tids: Any,
    clear: Any,
    given: Any,
    out_target: Any,
    out_followed: Any,
) -> None:
    tid = tids[n]
    if not 0 < tid < len(process) or (process[tid] != 0 and process[tid] != tid):
        return
    for w in range(slots.shape[1]):
        if slots[tid, w] & followed[w]:
            out_followed[n] = True
        slots[tid, w] = slots[tid, w] & ~clear[n, w] | given[n, w]
    target[tid] = _target_of(slots[tid], of_target)
    out_target[n] = target[tid]


@compiled
def _make_inside(
    child: Any, slots: Any, target: Any, of_target: Any, kept: Any, making: Any, gives: Any
) -> None:
    """A child made within another cgroup than its parent's."""
    for w in range(slots.shape[1]):
        slots[child, w] &= kept[w]
    for k in range(len(making)):
        for w in range(slots.shape[1]):
            if slots[child, w] & making[k, w]:
                for v in range(slots.shape[1]):
                    slots[child, v] |= gives[k, v]
    target[child] = _target_of(slots[child], of_target)


@compiled
def _resolve(
    types: Any,
    tids: Any,
    process: Any,
    made_row: Any,
    made_tid: Any,
    made_flags: Any,
    execs: int,
    launching: int,
    slots: Any,
    target: Any,
    of_target: Any,
    kept_inside: Any,
    making: Any,
    making_gives: Any,
    followed: Any,
    move_row: Any,
    move_tid: Any,
    move_clear: Any,
    move_set: Any,
    move_target: Any,
    move_followed: Any,
    out_pid: Any,
    out_launching: Any,
    out_target: Any,
) -> int:
    moved = 0
    made = 0
    for i in range(len(types)):
        while moved < len(move_row) and move_row[moved] <= i:
            _move(
                moved, process, slots, target, of_target, followed,
                move_tid, move_clear, move_set, move_target, move_followed,
            )  # fmt: skip
            moved += 1
        tid = tids[i]
        known = 0 <= tid < len(process)
        pid = process[tid] if known and process[tid] != 0 else tid
        out_pid[i] = pid
        if 0 <= pid < len(process):
            out_target[i] = target[pid]
        if types[i] == execs and tid == launching:
            launching = -1
        out_launching[i] = tid == launching
        if made < len(made_row) and made_row[made] == i:
            child, flags = made_tid[made], made_flags[made]
            made += 1
            is_thread = flags & CLONE_THREAD
            process[child] = pid if is_thread else child
            if not is_thread and 0 <= pid < len(process):
                for w in range(slots.shape[1]):
                    slots[child, w] = slots[pid, w]
                target[child] = target[pid]
                if flags & CLONE_INTO_CGROUP:
                    _make_inside(child, slots, target, of_target, kept_inside, making, making_gives)
                out_target[i] = target[child]
    while moved < len(move_row):
        _move(
            moved, process, slots, target, of_target, followed,
            move_tid, move_clear, move_set, move_target, move_followed,
        )  # fmt: skip
        moved += 1
    return launching
