"""Threads and processes over the recording, with the role of each."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from probes.backends.event_format import EventFormat
from probes.backends.timeline import Batch, Move
from probes.cgroups import container_id
from probes.rows import columns
from probes.rows.membership import Membership
from probes.rows.threads import CLONE_PARENT, CLONE_THREAD
from probes.schema import AssemblyContext

_KTHREADD = 2
_JOURNAL = re.compile(
    # Of xfs and btrfs the log is also written by plain kworkers, whose names do not tell.
    # kworker/R-: of newer kernels a work queue's own thread, for when memory is short.
    r"^(jbd2/|xfsaild/|(kworker/R-)?xfs-(sync/|cil/|log/)|kworker/R-xfs-l$|btrfs-transac)"
)
_FLUSH_ROWS = 4096


@dataclass
class _Thread:
    tid: int
    pid: int
    ppid: int | None
    comm: str
    start: int | None
    cgroup: str | None
    target: str | None = None
    role: str | None = None
    end: int | None = None
    kernel: bool = False


class ProcessRows:
    """One row a thread, emitted at its exit or at the end."""

    sees_others = True

    def __init__(self, context: AssemblyContext) -> None:
        """`context.membership` must be that of the batches to come."""
        self.schema = context.probe.table.arrow_schema()
        self._flushers = context.flushers
        self._formats: dict[int, tuple[str, EventFormat]] = {}
        for event in context.probe.events:
            if event.name in context.formats:
                parsed = context.formats[event.name]
                self._formats[parsed.id] = (event.label, parsed)
        self._alive: dict[int, _Thread] = {}
        self._ended: list[_Thread] = []
        self._processes: dict[int, set[int]] = {}
        """The threads of each process."""
        self._membership: Membership = context.membership
        self._targets = context.manifest["targets"]
        self._containers = {
            container["id"]: container["name"]
            for container in context.manifest.get("containers", ())
        }
        for tid, pid, ppid, comm, cgroup in context.manifest["threads"]:
            kernel = _KTHREADD in (tid, ppid)
            self._add(_Thread(tid, pid, ppid, comm, None, cgroup, kernel=kernel))
        for pid in self._processes:
            self._belongs(pid, self._membership.first_target(pid))

    def _add(self, thread: _Thread) -> None:
        self._alive[thread.tid] = thread
        self._processes.setdefault(thread.pid, set()).add(thread.tid)

    def _belongs(self, pid: int, number: int) -> None:
        """A process and its threads belong to a target from now on, or to none."""
        threads = [self._alive[tid] for tid in self._processes.get(pid, ())]
        target = self._targets[number - 1] if number else None
        name = target["name"] if target else None
        for thread in threads:
            if thread.target != name:
                thread.target = name
                thread.role = self._role_in(target, thread)

    def _role_in(self, target: Mapping[str, Any] | None, thread: _Thread) -> str | None:
        """Whoever joins a target has the target's role, and what it makes is a child.

        What a daemon makes is the daemon, too.
        """
        if target is None:
            return None
        if "cgroups" in target:
            parent = self._alive.get(thread.ppid or 0)
            made = parent is not None and parent.target == target["name"]
        else:
            made = thread.pid != target["pid"] and target["role"] == "target"
        return "child" if made else target["role"]

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows of the threads that ended, now and then."""
        moves = deque(batch.moves)
        for row in of_probe:
            while moves and moves[0].ts <= batch.ts[row]:
                self._moved(moves.popleft())
            label, event_format = self._formats[int(batch.type[row])]
            fields = _fields(batch, int(row), event_format)
            getattr(self, f"_{label}")(batch, int(row), fields)
        while moves:
            self._moved(moves.popleft())
        if len(self._ended) < _FLUSH_ROWS:
            return None
        return self._emit()

    def _moved(self, move: Move) -> None:
        self._belongs(move.pid, move.target)
        if move.cgroup is not None:
            self._enters(move.pid, move.cgroup)

    def _attach(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        thread, path = self._alive.get(fields.get("pid", 0)), fields.get("dst_path")
        if thread is not None and thread.tid == thread.pid and isinstance(path, str):
            self._enters(thread.pid, path)

    def _enters(self, pid: int, cgroup: str) -> None:
        """A process enters a cgroup. One in a container stays there until it enters another.

        Of several hierarchies the others may say less of where it is.
        """
        for tid in self._processes.get(pid, ()):
            thread = self._alive[tid]
            if container_id(cgroup) or not container_id(thread.cgroup):
                thread.cgroup = cgroup

    def _newtask(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        tid = fields.get("pid")
        flags = fields.get("clone_flags", 0)
        if not isinstance(tid, int):
            return
        parent = self._thread(int(batch.tid[row]), int(batch.pid[row]))
        of_parent = bool(flags & CLONE_THREAD)
        listed = self._alive.get(tid)
        cgroup = parent.cgroup
        if listed is not None and listed.start is None:
            # Made between the first event and the list of threads: it is in both.
            cgroup = listed.cgroup
            self._close(tid, None)
            self._ended.pop()
        self._close(tid, None)
        child = _Thread(
            tid,
            parent.pid if of_parent else tid,
            parent.ppid if of_parent or flags & CLONE_PARENT else parent.pid,
            str(fields.get("comm", parent.comm)),
            int(batch.ts[row]),
            cgroup,
            parent.target,
            parent.role,
        )
        child.kernel = _KTHREADD in (tid, child.ppid)
        self._add(child)
        if not of_parent:
            child.target = None
            assert batch.target is not None
            self._belongs(tid, int(batch.target[row]))

    def _rename(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        tid = fields.get("pid", int(batch.tid[row]))
        self._thread(tid, int(batch.pid[row])).comm = str(fields.get("newcomm", ""))

    def _exec(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        # The thread that called exec lives on as the process's first thread.
        old, new = fields.get("old_pid"), fields.get("pid")
        if isinstance(old, int) and old != new and old in self._alive:
            self._close(old, int(batch.ts[row]))

    def _exit(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        tid = int(batch.tid[row])
        thread = self._thread(tid, int(batch.pid[row]))
        thread.comm = str(fields.get("comm", thread.comm))
        self._close(tid, int(batch.ts[row]))

    def _thread(self, tid: int, pid: int) -> _Thread:
        if tid not in self._alive:
            self._add(_Thread(tid, pid, None, "", None, None))
            self._belongs(pid, self._membership.first_target(pid))
        return self._alive[tid]

    def _close(self, tid: int, end: int | None) -> None:
        thread = self._alive.pop(tid, None)
        if thread is not None:
            self._processes[thread.pid].discard(tid)
            if not self._processes[thread.pid]:
                del self._processes[thread.pid]
            thread.end = end
            self._ended.append(thread)

    def _role(self, thread: _Thread) -> str:
        if thread.role:
            return thread.role
        if thread.tid in self._flushers:
            return "flusher"
        # A user's process may call itself jbd2/...; only a kernel thread is one.
        if thread.kernel and _JOURNAL.match(thread.comm):
            return "journal"
        return "other"

    def finish(self) -> pa.RecordBatch | None:
        """Rows of all threads that still live."""
        self._ended += self._alive.values()
        self._alive = {}
        return self._emit() if self._ended else None

    def _emit(self) -> pa.RecordBatch:
        ended, self._ended = self._ended, []
        containers = [container_id(t.cgroup) for t in ended]
        values: dict[str, list[Any]] = {
            "pid": [t.pid for t in ended],
            "ppid": [t.ppid for t in ended],
            "tid": [t.tid for t in ended],
            "comm": [t.comm for t in ended],
            "start_ns": [t.start for t in ended],
            "end_ns": [t.end for t in ended],
            "role": [self._role(t) for t in ended],
            "target": [t.target for t in ended],
            "container_id": containers,
            "container_name": [self._containers.get(c or "") for c in containers],
            "cgroup": [t.cgroup for t in ended],
        }
        return pa.RecordBatch.from_arrays(
            [
                pa.array(values[f.name], pa.string()).dictionary_encode()
                if pa.types.is_dictionary(f.type)
                else pa.array(values[f.name], f.type)
                for f in self.schema
            ],
            schema=self.schema,
        )


def _fields(batch: Batch, row: int, event_format: EventFormat) -> dict[str, Any]:
    """All fields of one event that lie within it."""
    start, length = int(batch.offset[row]), int(batch.length[row])
    payload = batch.payload[start : start + length].tobytes()
    found: dict[str, Any] = {}
    for field in event_format.fields.values():
        raw = payload[field.offset : field.offset + field.size]
        if len(raw) < field.size:
            continue
        if field.data_loc:
            where = int.from_bytes(raw[:2], "little")
            raw = payload[where : where + int.from_bytes(raw[2:4], "little")]
        if field.text:
            found[field.name] = columns.readable(raw.split(b"\0")[0])
        elif field.size <= 8:
            found[field.name] = int.from_bytes(raw, "little", signed=field.signed)
    return found
