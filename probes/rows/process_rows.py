"""Threads and processes over the recording, with the role of each."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.timeline import Batch, Move
from tracer.probes.cgroups import Containers
from tracer.probes.limits import PID_LIMIT
from tracer.probes.proc import KTHREADD
from tracer.probes.rows import columns
from tracer.probes.rows.membership import Membership
from tracer.probes.rows.threads import CLONE_PARENT, CLONE_THREAD
from tracer.probes.schema import AssemblyContext

_JOURNAL = re.compile(
    # Plain kworkers also write the logs of xfs and btrfs; their names do not say so.
    # kworker/R-: of newer kernels a work queue's own thread, for when memory is short.
    r"^(jbd2/|xfsaild/|(kworker/R-)?xfs-(sync/|cil/|log/)|kworker/R-xfs-l$|btrfs-transac)"
)
_FLUSH_ROWS = 4096


@dataclass
class _Process:
    """The facts that the threads of a process share."""

    pid: int
    ppid: int | None
    threads: set[int] = field(default_factory=set)
    cgroup: str | None = None
    target: str | None = None
    role: str | None = None
    first: _Thread | None = None
    """The first thread, if it has ended before others."""


@dataclass
class _Thread:
    tid: int
    ppid: int | None
    comm: str
    start: int | None
    process: _Process
    end: int | None = None
    kernel: bool = False
    maker: int | None = None
    """The process of the kernel that made it, which need not be its parent."""


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
        self._ended: list[dict[str, Any]] = []
        """Rows of threads that are no more."""
        self._processes: dict[int, _Process] = {}
        self._membership: Membership = context.membership
        self._targets = context.manifest["targets"]
        self._with_cgroups = {t["name"] for t in self._targets if "cgroups" in t}
        self._containers = Containers(context.manifest.get("containers", ()))
        for tid, pid, ppid, comm, cgroup in context.manifest["threads"]:
            process = self._process(pid, ppid)
            if tid == pid or not process.threads:
                process.cgroup, process.ppid = cgroup, ppid
            self._add(_Thread(tid, ppid, comm, None, process, kernel=KTHREADD in (tid, ppid)))
        for process in self._processes.values():
            self._belongs(process, self._membership.first_target(process.pid))

    def _process(self, pid: int, ppid: int | None) -> _Process:
        """The process of this number, made where there is none."""
        return self._processes.setdefault(pid, _Process(pid, ppid))

    def _add(self, thread: _Thread) -> None:
        self._close(thread.tid, None)
        self._alive[thread.tid] = thread
        before = self._processes.get(thread.process.pid)
        if before is not None and before is not thread.process:
            self._end_first(before)
        self._processes[thread.process.pid] = thread.process
        thread.process.threads.add(thread.tid)

    def _belongs(self, process: _Process, number: int) -> None:
        """A process belongs to a target from now on, or leaves its target.

        One that leaves a target's cgroup keeps the target: nothing is recorded of it outside. One
        that a daemon made leaves the daemon for a container, and all that it does counts there.
        """
        if not number:
            if process.target not in self._with_cgroups:
                process.target = process.role = None
            return
        target = self._targets[number - 1]
        if process.target != target["name"]:
            process.target = target["name"]
            process.role = self._role_in(target, process)

    def _role_in(self, target: Mapping[str, Any], process: _Process) -> str:
        """Whoever joins a target has the target's role, and what it makes is a child.

        What a daemon makes is the daemon, too.
        """
        if "cgroups" in target:
            parent = self._processes.get(process.ppid or 0)
            made = parent is not None and parent.target == target["name"]
        else:
            made = process.pid != target["pid"] and target["role"] == "target"
        return "child" if made else target["role"]

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows of the threads that ended, now and then."""
        moves = deque(batch.moves)
        for row in of_probe:
            while moves and moves[0].row <= row:
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
        process = self._processes.get(move.pid)
        if process is None:
            return
        self._belongs(process, move.target)
        if move.cgroup is not None:
            self._enters(process, move.cgroup)

    def _attach(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        tid, path = _tid(fields, "pid"), fields.get("dst_path")
        thread = None if tid is None else self._alive.get(tid)
        if thread is not None and thread.tid == thread.process.pid and isinstance(path, str):
            self._enters(thread.process, path)

    def _enters(self, process: _Process, cgroup: str) -> None:
        """A process enters a cgroup. One in a container stays there until it enters another.

        Of several hierarchies the others may say less of where it is.
        """
        if self._containers.of(cgroup) or not self._containers.of(process.cgroup):
            process.cgroup = cgroup

    def _newtask(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        tid, flags = _tid(fields, "pid"), fields.get("clone_flags")
        if tid is None:
            return
        flags = flags if isinstance(flags, int) else 0
        parent = self._thread(int(batch.tid[row]), int(batch.pid[row]))
        of_parent = bool(flags & CLONE_THREAD)
        listed = self._alive.get(tid)
        cgroup = parent.process.cgroup
        if listed is not None and listed.start is None:
            # Made between the first event and the list of threads: it is in both.
            cgroup = listed.process.cgroup
            self._close(tid, None)
            self._ended.pop()
        ppid = parent.ppid if of_parent or flags & CLONE_PARENT else parent.process.pid
        process = parent.process
        if not of_parent:
            process = _Process(tid, ppid, cgroup=cgroup)
        kernel = KTHREADD in (tid, ppid)
        comm, start = str(fields.get("comm", parent.comm)), int(batch.ts[row])
        maker = parent.process.pid if kernel and parent.process.pid != KTHREADD else None
        self._add(_Thread(tid, ppid, comm, start, process, kernel=kernel, maker=maker))
        if not of_parent:
            assert batch.target is not None
            self._belongs(process, int(batch.target[row]))

    def _rename(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        by, pid = int(batch.tid[row]), int(batch.pid[row])
        tid = _tid(fields, "pid") if "pid" in fields else by
        if tid is None:
            return
        process = self._processes.get(pid)
        if process is not None and process.first is not None and tid == pid != by:
            # Another thread of the process names the first one, which has ended.
            thread = process.first
        else:
            thread = self._thread(tid, pid)
        thread.comm = str(fields.get("newcomm", ""))

    def _exec(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        # The thread that called exec lives on as the process's first thread.
        old, new = _tid(fields, "old_pid"), _tid(fields, "pid")
        thread = self._alive.get(int(batch.tid[row]))
        if thread is not None and thread.kernel:
            # The kernel starts a program, such as one that gets a core dump: call_usermodehelper
            # (kernel/umh.c). Its parent is that of the kernel's threads, but it is none of them.
            thread.kernel, thread.ppid = False, thread.maker
            thread.process.ppid = thread.maker
        if old is not None and old != new:
            if new is not None:
                self._thread(new, int(batch.pid[row]))
            self._close(old, int(batch.ts[row]))

    def _exit(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        tid = int(batch.tid[row])
        thread = self._thread(tid, int(batch.pid[row]))
        thread.comm = str(fields.get("comm", thread.comm))
        self._close(tid, int(batch.ts[row]))

    def _thread(self, tid: int, pid: int) -> _Thread:
        if tid not in self._alive:
            process = self._process(pid, None)
            thread = _Thread(tid, None, "", None, process)
            if not process.threads:
                self._belongs(process, self._membership.first_target(pid))
            elif process.first is not None and tid == pid:
                # A thread that calls exec takes over the number and the age of the first one, which
                # has ended before (`de_thread` of fs/exec.c).
                thread, process.first = process.first, None
                thread.end = None
            self._add(thread)
        return self._alive[tid]

    def _close(self, tid: int, end: int | None) -> None:
        thread = self._alive.pop(tid, None)
        if thread is None:
            return
        process = thread.process
        process.threads.discard(tid)
        if not process.threads and self._processes.get(process.pid) is process:
            del self._processes[process.pid]
        thread.end = end
        if process.threads and end is not None and tid == process.pid:
            process.first = thread
            return
        if not process.threads:
            self._end_first(process)
        self._ended.append(self._row(thread))

    def _end_first(self, process: _Process) -> None:
        """The first thread of a process does not live on by an exec."""
        if process.first is not None:
            self._ended.append(self._row(process.first))
            process.first = None

    def _row(self, thread: _Thread) -> dict[str, Any]:
        process = thread.process
        container = self._containers.of(process.cgroup)
        return {
            "pid": process.pid,
            "ppid": thread.ppid,
            "tid": thread.tid,
            "comm": thread.comm or None,
            "start_ns": thread.start,
            "end_ns": thread.end,
            "role": self._role(thread),
            "target": process.target,
            "container_id": container,
            "container_name": self._containers.name(container),
            "cgroup": process.cgroup,
        }

    def _role(self, thread: _Thread) -> str:
        if thread.process.role:
            return thread.process.role
        if thread.tid in self._flushers:
            return "flusher"
        # A user's process may call itself jbd2/...; only a kernel thread is one.
        if thread.kernel and _JOURNAL.match(thread.comm):
            return "journal"
        return "other"

    def finish(self) -> pa.RecordBatch | None:
        """Rows of all threads that still live."""
        self._ended += map(self._row, self._alive.values())
        self._alive = {}
        for process in self._processes.values():
            self._end_first(process)
        return self._emit() if self._ended else None

    def _emit(self) -> pa.RecordBatch:
        ended, self._ended = self._ended, []
        values = {name: [row[name] for row in ended] for name in self.schema.names}
        return pa.RecordBatch.from_arrays(
            [
                pa.array(values[f.name], pa.string()).dictionary_encode()
                if pa.types.is_dictionary(f.type)
                else pa.array(values[f.name], f.type)
                for f in self.schema
            ],
            schema=self.schema,
        )


def _tid(fields: Mapping[str, Any], name: str) -> int | None:
    """A field that is a thread id; None where there is none, or a number that no thread has."""
    value = fields.get(name)
    return value if isinstance(value, int) and 0 <= value < PID_LIMIT else None


def _fields(batch: Batch, row: int, event_format: EventFormat) -> dict[str, Any]:
    """All fields of one event that lie within it."""
    start, length = int(batch.offset[row]), int(batch.length[row])
    payload = batch.payload[start : start + length].tobytes()
    found: dict[str, Any] = {}
    for known in event_format.fields.values():
        raw = payload[known.offset : known.offset + known.size]
        if len(raw) < known.size:
            continue
        if known.data_loc:
            where = int.from_bytes(raw[:2], "little")
            raw = payload[where : where + int.from_bytes(raw[2:4], "little")]
        if known.text:
            found[known.name] = columns.readable(raw.split(b"\0")[0])
        elif known.size <= 8:
            found[known.name] = int.from_bytes(raw, "little", signed=known.signed)
    return found
