"""Page faults: one row a fault, with what it touched and whether it was minor or major.

The tracepoint tells address, instruction and access. perf's software event that follows in the
same thread tells a major fault, and a minor one taken in kernel mode: an attempt there may fail
without a trace. In user mode a fault is minor if neither a major one nor a signal came of it,
which spares an event for each of the most frequent kind. What failed, and what a lost event may
have told of, is of kind "unknown". (Told as minor by mistake: a fault that waited for the disk
when its thread was killed.)

Without the tracepoints, each of perf's events is a fault of the kind that it tells. They are told
of every process, and of no fault that failed.

Kernels before 6.0 count the first write to a page of shared memory as major, read or not
(`retries_are_major` in the manifest): there, major writes outside of private memory are "unknown".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.perf_events.records import IN_USER_MODE, MAJOR, MODE
from tracer.probes.backends.timeline import Batch
from tracer.probes.compiled import compiled
from tracer.probes.limits import PID_LIMIT
from tracer.probes.rows import columns
from tracer.probes.rows.fault_places import FaultPlaces
from tracer.probes.rows.slots import NOBODY
from tracer.probes.schema import AssemblyContext

_X86 = ("x86_64", "i686", "i586", "i486", "i386")
_WRITE, _INSTRUCTION = 1 << 1, 1 << 4
"""arch/x86/include/asm/trap_pf.h"""
_ACCESS = ["read", "write", "exec"]
_KINDS = ["unknown", "minor", "major"]
_UNKNOWN, _MINOR, _MAJOR, _FAILED = range(4)
_SIGSEGV, _SIGBUS = 11, 7
_FAULT_CODES = {_SIGSEGV: (1, 2, 4), _SIGBUS: (2, 4)}
"""`si_code` of the signals that a failed fault sends: MAPERR, ACCERR, PKUERR; ADRERR, MCEERR_AR.
Source: include/uapi/asm-generic/siginfo.h."""
_DEEPEST = 32
"""Faults within faults that a thread can be in."""

_FAULT = np.dtype(
    [
        ("ts", np.int64),
        ("cpu", np.int16),
        ("pid", np.int32),
        ("tid", np.int32),
        ("address", np.int64),
        ("ip", np.int64),
        ("error_code", np.int64),
        ("code_known", np.bool_),
        ("user", np.bool_),
        ("kind", np.int8),
        ("file", np.int32),
        ("file_offset", np.int64),
        ("ip_file", np.int32),
        ("ip_offset", np.int64),
    ]
)


class FaultRows:
    """One row a page_fault_user or page_fault_kernel event; without those, one of perf's."""

    # A launched command's first mappings are made before its exec is told of.
    sees_others = True

    def __init__(self, context: AssemblyContext) -> None:
        self.probe = context.probe
        self.schema = self.probe.table.arrow_schema()
        formats = {e.label: context.formats.get(e.name) for e in context.probe.events}
        self._faults = [
            (label == "user", formats[label]) for label in ("user", "kernel") if formats[label]
        ]
        kinds = [
            (kind, formats[label])
            for kind, label in ((_MINOR, "minor"), (_MAJOR, "major"))
            if formats.get(label)
        ]
        self._alone = [] if self._faults else kinds
        self._kinds = kinds if self._faults else []
        of = {target["kind"] for target in context.manifest["targets"]}
        self._targets_only = bool(self._alone and of) and "machine" not in of
        self._signal = formats.get("signal")
        # Only where majors and failures are told is the rest minor.
        self._all_told = bool(self._signal and formats.get("major")) and not self._alone
        blind = np.array(sorted(context.blind.get(MAJOR, [])), np.int64).reshape(-1, 2)
        self._blind_from = blind[:, 0]
        self._blind_to = np.maximum.accumulate(blind[:, 1])
        kernel = context.manifest.get("kernel", {})
        self._retries_are_major = bool(kernel.get("retries_are_major"))
        self._codes_known = context.manifest["host"].get("machine") in _X86
        self._places = FaultPlaces(context, formats)
        self._waiting = np.empty(0, _FAULT)
        self._open = np.full(PID_LIMIT, -1, np.int32)

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows of the faults of which nothing more will come."""
        if not len(of_probe):
            return None
        types = batch.type[of_probe]
        faults, at = self._read(batch, of_probe, types)
        self._places.locate(batch, of_probe, types, faults, at)
        others = None if batch.wanted is None else ~batch.wanted
        if self._targets_only and batch.target is not None:
            others = batch.target == NOBODY
        for left_out in (batch.launching, others):
            if left_out is not None and len(at):
                kept = ~left_out[of_probe[at]]
                faults, at = faults[kept], at[kept]
        every = np.concatenate([self._waiting, faults])
        ended = np.zeros(len(types), np.int8)
        for kind, event_format in self._kinds:
            ended[types == _id(event_format)] = kind
        ended[self._failures(batch, of_probe, types)] = _FAILED
        addresses, ips = self._ended_at(batch, of_probe, types)
        number = np.full(len(types), -1, np.int32)
        number[at] = len(self._waiting) + np.arange(len(at))
        waiting = np.zeros(len(every), np.bool_)
        _pair(
            ended,
            number,
            batch.tid[of_probe],
            addresses,
            ips,
            len(self._waiting),
            every["tid"].copy(),
            every["address"].copy(),
            every["ip"].copy(),
            every["user"].copy(),
            self._minor_unless_told(every),
            self._open,
            np.full(len(every), -1, np.int32),
            every["kind"],
            waiting,
        )
        self._open[every["tid"]] = -1
        done = ~waiting if self._kinds else np.ones(len(every), np.bool_)
        self._waiting = every[~done]
        rows = self._batch(every[done])
        self._places.forget_closed(self._waiting, int(batch.ts[of_probe[-1]]))
        return rows

    def _read(
        self, batch: Batch, of_probe: NDArray[np.int64], types: NDArray[np.uint16]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The faults among the events, and where in `of_probe` they are."""
        ids = [_id(f) for _, f in (*self._faults, *self._alone)]
        at = np.flatnonzero(np.isin(types, ids))
        faults = np.zeros(len(at), _FAULT)
        rows = of_probe[at]
        faults["ts"], faults["cpu"] = batch.ts[rows], batch.cpu[rows]
        faults["pid"], faults["tid"] = batch.pid[rows], batch.tid[rows]
        for in_user_mode, event_format in self._faults:
            mine = np.flatnonzero(types[at] == _id(event_format))
            faults["user"][mine] = in_user_mode
            for name in ("address", "ip", "error_code"):
                field = event_format.fields.get(name) if event_format else None
                if field is not None and len(mine):
                    values, known = columns.integers(batch, rows[mine], field)
                    faults[name][mine] = values
                    if name == "error_code":
                        faults["code_known"][mine] = known & self._codes_known
        for kind, event_format in self._alone:
            mine = np.flatnonzero(types[at] == _id(event_format))
            if event_format is not None and len(mine):
                for name in ("address", "ip"):
                    field = event_format.field(name)
                    faults[name][mine], _ = columns.integers(batch, rows[mine], field)
                misc, _ = columns.integers(batch, rows[mine], event_format.field("misc"))
                faults["user"][mine] = misc & MODE == IN_USER_MODE
                faults["kind"][mine] = kind
        return faults, at

    def _ended_at(
        self, batch: Batch, of_probe: NDArray[np.int64], types: NDArray[np.uint16]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Address and instruction that each of perf's events tells."""
        found = {name: np.zeros(len(types), np.int64) for name in ("address", "ip")}
        valid = np.zeros(len(types), np.bool_)
        for _, event_format in self._kinds:
            places = np.flatnonzero(types == _id(event_format))
            if event_format is not None and len(places):
                for name, out in found.items():
                    field = event_format.field(name)
                    columns.integers(batch, of_probe[places], field, out, valid, places)
        return found["address"], found["ip"]

    def _failures(
        self, batch: Batch, of_probe: NDArray[np.int64], types: NDArray[np.uint16]
    ) -> NDArray[np.int64]:
        """Finds the faults in `of_probe` whose thread got a signal because the fault failed."""
        at = np.flatnonzero(types == _id(self._signal))
        if self._signal is None or not len(at):
            return at
        signal, _ = columns.integers(batch, of_probe[at], self._signal.field("sig"))
        code, _ = columns.integers(batch, of_probe[at], self._signal.field("code"))
        failed = np.zeros(len(at), np.bool_)
        for number, codes in _FAULT_CODES.items():
            failed |= (signal == number) & np.isin(code, codes)
        return at[failed]

    def _minor_unless_told(self, faults: NDArray[Any]) -> NDArray[np.bool_]:
        """Faults of user mode that are minor if nothing else is heard of them."""
        if not self._all_told:
            return np.zeros(len(faults), np.bool_)
        # The vsyscall page lies among the kernel's addresses, and nothing is mapped there.
        told: NDArray[np.bool_] = faults["user"] & (faults["address"] >= 0)
        begun = np.searchsorted(self._blind_from, faults["ts"], side="right") - 1
        if len(self._blind_to):
            told &= (begun < 0) | (self._blind_to[begun] < faults["ts"])
        return told

    def finish(self) -> pa.RecordBatch | None:
        """Rows of the faults of which nothing was heard."""
        waiting, self._waiting = self._waiting, self._waiting[:0]
        waiting["kind"][self._minor_unless_told(waiting)] = _MINOR
        return self._batch(np.sort(waiting, order="ts"))

    def _batch(self, faults: NDArray[Any]) -> pa.RecordBatch | None:
        n = len(faults)
        if not n:
            return None
        every = np.ones(n, np.bool_)
        code = faults["error_code"]
        access = np.where(code & _INSTRUCTION, 2, np.where(code & _WRITE, 1, 0))
        kind = faults["kind"]
        if self._retries_are_major:
            written = ~faults["code_known"] | (code & _WRITE != 0)
            doubtful = (kind == _MAJOR) & written & self._places.may_be_shared(faults)
            kind = np.where(doubtful, _UNKNOWN, kind)
        made = {
            "kind": columns.encoded(kind, every, _KINDS),
            "access": columns.encoded(access, faults["code_known"], _ACCESS),
            "user": pa.array(faults["user"]),
            "address": pa.array(faults["address"].view(np.uint64)),
            "ip": pa.array(faults["ip"].view(np.uint64)),
            **self._places.columns(faults),
        }
        arrays = [
            made[c.name] if c.name in made else pa.array(np.ascontiguousarray(faults[c.name]))
            for c in self.probe.table.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _id(event_format: EventFormat | None) -> int:
    return event_format.id if event_format is not None else -1


@compiled
def _pair(
    ended: Any,
    number: Any,
    tids: Any,
    addresses: Any,
    ips: Any,
    waiting_before: int,
    fault_tid: Any,
    fault_address: Any,
    fault_ip: Any,
    fault_user: Any,
    minor_unless_told: Any,
    latest: Any,
    before: Any,
    kind: Any,
    waiting: Any,
) -> None:
    """Sets each fault's kind from its thread's next perf event of the same place.

    Its place is its address and its instruction: what reads a stack may fail at the very address.
    A thread that faults in user mode has ended all its faults before.

    `number` is a fault's place, -1 for other events; `latest` the last fault that a thread waits
    for, `before` the one that it waited for before that: reading a user's stack from within a
    fault makes faults of its own, which fail. `waiting` is set for those still waited for.
    """
    for i in range(waiting_before):
        before[i] = latest[fault_tid[i]]
        latest[fault_tid[i]] = i
    for i in range(len(ended)):
        tid = tids[i]
        if tid < 0 or tid >= len(latest):
            continue
        at = latest[tid]
        if number[i] >= 0:
            if fault_user[number[i]]:
                while at >= 0:
                    if minor_unless_told[at]:
                        kind[at] = _MINOR
                    at = before[at]
            before[number[i]] = at
            latest[tid] = number[i]
        elif ended[i] == _FAILED:
            for _ in range(_DEEPEST):
                if at < 0:
                    break
                if fault_user[at]:
                    latest[tid] = before[at]
                    break
                at = before[at]
        elif ended[i] != _UNKNOWN:
            for _ in range(_DEEPEST):
                if at < 0:
                    break
                if fault_address[at] == addresses[i] and fault_ip[at] == ips[i]:
                    kind[at] = ended[i]
                    latest[tid] = before[at]
                    break
                at = before[at]
    for i in range(len(fault_tid)):
        at = latest[fault_tid[i]]
        for _ in range(_DEEPEST):
            if at < 0:
                break
            waiting[at] = True
            at = before[at]
