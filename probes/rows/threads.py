"""Whose thread an event's thread is: thread ids to processes, as they change over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from probes.backends.event_format import EventFormat
from probes.backends.timeline import Batch, Move
from probes.compiled import compiled
from probes.rows.membership import Membership
from probes.rows.slots import NOBODY
from probes.schema import Scope

PID_LIMIT = 4 << 20
"""The kernel's own PID_MAX_LIMIT on 64-bit machines (include/linux/threads.h)."""

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
        newtask = formats.get("task:task_newtask")
        self._newtask = (-1, 0, 0, 0)
        if newtask and {"pid", "clone_flags"} <= newtask.fields.keys():
            flags = newtask.fields["clone_flags"]
            self._newtask = (newtask.id, newtask.fields["pid"].offset, flags.offset, flags.size)
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
        self._launching = _resolve(
            batch.type,
            batch.tid,
            batch.offset,
            batch.length,
            batch.payload,
            self._process,
            *self._newtask,
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
            Move(cause.ts, int(moves.tid[n]), int(moves.target[n]), cause.path)
            for n, cause in enumerate(moves.causes)
            if moves.target[n] >= 0
        ]
        if self._membership.exact:
            batch.wanted = batch.target != NOBODY


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
    offset: Any,
    length: Any,
    payload: Any,
    process: Any,
    newtask: int,
    child_offset: int,
    flags_offset: int,
    flags_size: int,
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
        if (
            types[i] == newtask
            and child_offset + 4 <= length[i]
            and flags_offset + flags_size <= length[i]
        ):
            at = offset[i] + child_offset
            child = (
                np.int64(payload[at])
                | np.int64(payload[at + 1]) << 8
                | np.int64(payload[at + 2]) << 16
                | np.int64(payload[at + 3]) << 24
            )
            flags = offset[i] + flags_offset
            # CLONE_THREAD is bit 16: the third byte of the flags.
            is_thread = payload[flags + 2] & 1
            if 0 < child < len(process):
                process[child] = pid if is_thread else child
                if not is_thread and 0 <= pid < len(process):
                    for w in range(slots.shape[1]):
                        slots[child, w] = slots[pid, w]
                    target[child] = target[pid]
                    # CLONE_INTO_CGROUP is bit 33: the fifth byte.
                    if flags_size > 4 and payload[flags + 4] & 2:
                        _make_inside(
                            child, slots, target, of_target, kept_inside, making, making_gives
                        )
                    out_target[i] = target[child]
    while moved < len(move_row):
        _move(
            moved, process, slots, target, of_target, followed,
            move_tid, move_clear, move_set, move_target, move_followed,
        )  # fmt: skip
        moved += 1
    return launching
