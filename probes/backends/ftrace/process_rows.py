"""Threads and processes over the recording, with the role of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from probes.backends.ftrace import columns
from probes.backends.ftrace.event_format import EventFormat
from probes.backends.ftrace.threads import CLONE_PARENT, CLONE_THREAD
from probes.backends.timeline import Batch
from probes.schema import AssemblyContext

_KTHREADD = 2
_JOURNAL = re.compile(r"^(jbd2/|xfsaild/|xfs-(sync|cil|log)|btrfs-transac)")
_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)")
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

    sees_launch = True

    def __init__(self, context: AssemblyContext) -> None:
        self.schema = context.probe.table.arrow_schema()
        self._flushers = context.flushers
        self._formats: dict[int, tuple[str, EventFormat]] = {}
        for event in context.probe.events:
            if event.name in context.formats:
                parsed = context.formats[event.name]
                self._formats[parsed.id] = (event.label, parsed)
        self._alive: dict[int, _Thread] = {}
        self._ended: list[_Thread] = []
        self._targets = {
            target["pid"]: (target["name"], target["role"])
            for target in context.manifest["targets"]
            if target["kind"] != "machine"
        }
        self._snapshot(context.manifest["threads"])

    def _snapshot(self, threads: list[tuple[int, int, int, str, str | None]]) -> None:
        for tid, pid, ppid, comm, cgroup in threads:
            thread = _Thread(tid, pid, ppid, comm, None, cgroup)
            thread.kernel = _KTHREADD in (tid, ppid)
            self._alive[tid] = thread
        # A target's descendants: parents first, however the snapshot is ordered.
        children: dict[int, list[_Thread]] = {}
        for thread in self._alive.values():
            if thread.ppid is not None and thread.pid == thread.tid:
                children.setdefault(thread.ppid, []).append(thread)
        for pid, (name, role) in self._targets.items():
            waiting = [pid]
            seen = set()
            while waiting:
                current = waiting.pop()
                if current in seen:
                    continue
                seen.add(current)
                for thread in self._alive.values():
                    if thread.pid == current and thread.target is None:
                        thread.target = name
                        thread.role = role if current == pid else "child"
                waiting += [child.pid for child in children.get(current, [])]

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows of the threads that ended, now and then."""
        for row in of_probe:
            label, event_format = self._formats[int(batch.type[row])]
            fields = _fields(batch, int(row), event_format)
            getattr(self, f"_{label}")(batch, int(row), fields)
        if len(self._ended) < _FLUSH_ROWS:
            return None
        return self._emit()

    def _newtask(self, batch: Batch, row: int, fields: dict[str, Any]) -> None:
        tid = fields.get("pid")
        flags = fields.get("clone_flags", 0)
        if not isinstance(tid, int):
            return
        parent = self._thread(int(batch.tid[row]), int(batch.pid[row]))
        of_parent = bool(flags & CLONE_THREAD)
        listed = self._alive.get(tid)
        if listed is not None and listed.start is None:
            # Made between the first event and the list of threads: it is in both.
            del self._alive[tid]
        self._close(tid, None)
        child = _Thread(
            tid,
            parent.pid if of_parent else tid,
            parent.ppid if of_parent or flags & CLONE_PARENT else parent.pid,
            str(fields.get("comm", parent.comm)),
            int(batch.ts[row]),
            parent.cgroup,
            parent.target,
            parent.role if of_parent else ("child" if parent.target else None),
        )
        child.kernel = _KTHREADD in (tid, child.ppid)
        if child.pid in self._targets and not of_parent:
            # A target of its own, made before its pid was in the snapshot.
            child.target, child.role = self._targets[child.pid]
        self._alive[tid] = child

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
            target, role = self._targets.get(pid, (None, None))
            self._alive[tid] = _Thread(tid, pid, None, "", None, None, target, role)
        return self._alive[tid]

    def _close(self, tid: int, end: int | None) -> None:
        thread = self._alive.pop(tid, None)
        if thread is not None:
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
        containers = [_CONTAINER.search(t.cgroup or "") for t in ended]
        values: dict[str, list[Any]] = {
            "pid": [t.pid for t in ended],
            "ppid": [t.ppid for t in ended],
            "tid": [t.tid for t in ended],
            "comm": [t.comm for t in ended],
            "start_ns": [t.start for t in ended],
            "end_ns": [t.end for t in ended],
            "role": [self._role(t) for t in ended],
            "target": [t.target for t in ended],
            "container_id": [c[1] if c else None for c in containers],
            "container_name": [None for _ in ended],
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
