"""Whose thread an event's thread is: thread ids to processes, as they change over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from probes.backends.ftrace.event_format import EventFormat
from probes.backends.timeline import Batch
from probes.compiled import compiled
from probes.schema import Scope

PID_LIMIT = 4 << 20
"""The kernel's own PID_MAX_LIMIT on 64-bit machines (include/linux/threads.h)."""

CLONE_THREAD = 0x10000
CLONE_PARENT = 0x8000
"""include/uapi/linux/sched.h"""


class Threads:
    """Resolves `Batch.pid`, and marks what a command did before its exec."""

    def __init__(
        self,
        snapshot: Iterable[tuple[int, int]],
        formats: Mapping[str, EventFormat],
        launched: int | None,
    ) -> None:
        """`snapshot` has (tid, pid) of all threads at the start; `launched` is the command."""
        self._process = np.zeros(PID_LIMIT, np.int32)
        for tid, pid in snapshot:
            if 0 <= tid < PID_LIMIT:
                self._process[tid] = pid
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
        """Fill `batch.pid` and `batch.launching`."""
        batch.pid = np.empty(len(batch), np.int32)
        batch.launching = np.zeros(len(batch), np.bool_)
        if any(gap.of_scope(Scope.MACHINE) for gap in batch.gaps):
            # The exec itself may be lost: better the launch among the command's events than none.
            self._launching = -1
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
            batch.pid,
            batch.launching,
        )


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
    out_pid: Any,
    out_launching: Any,
) -> int:
    for i in range(len(types)):
        tid = tids[i]
        known = 0 <= tid < len(process)
        pid = process[tid] if known and process[tid] != 0 else tid
        out_pid[i] = pid
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
            # CLONE_THREAD is bit 16: the third byte of the flags.
            is_thread = payload[offset[i] + flags_offset + 2] & 1
            if 0 < child < len(process):
                process[child] = pid if is_thread else child
    return launching
