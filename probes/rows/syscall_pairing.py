"""System calls: entry and exit of each thread paired into one row.

A call is emitted when it ends. A call that never returned (exit, or still running at the end)
has neither duration nor result. An exit without its entry is a call that began before the
recording, or a child's first return from its parent's fork: neither is a call of this
recording, so neither is a row. Where events were lost between a call's entry and the exit that
seems to be its own, the exit may be another call's: then duration and result are null, too.
An exec of a thread that is not its process' first one returns as that first thread, whose number
it takes (kernel: de_thread in fs/exec.c); the row has the number that called.

A 32-bit program has numbers of its own for its calls. On x86 an exec returns with the number that
execve has for the new program (kernel: __set_personality_ia32 in arch/x86/kernel/process_64.c),
which tells what that is; children are what their parents are; the recorder looks at the programs of
processes that were there before (elsewhere it does so alone). No event tells whether a 64-bit
program makes a 32-bit call (int 0x80): such a call has the name of the 64-bit call of its number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.backends.timeline import Batch
from tracer.probes.compiled import compiled
from tracer.probes.events.syscalls import ARGUMENTS, FCNTL, FCNTL_NUMBERS, FLAGS, LENGTH
from tracer.probes.limits import PID_LIMIT
from tracer.probes.rows import columns
from tracer.probes.rows.doubt import overlaps_gaps
from tracer.probes.schema import AssemblyContext, Scope

_NO_NR = -2
_UNKNOWN_NR = -1
"""The call number in sys_exit after a signal return, which replaces the registers."""

_EXECS = ("execve", "execveat")
_FORKS = ("clone", "clone3", "fork", "vfork")
_DIGITS = 10
"""A number of fewer digits has 32 bits."""
_COMPAT = 1 << 33
"""Added to the numbers of 32-bit calls, to tell them from the others."""
_KEPT = 4
"""Arguments that a row keeps."""
_NOT_KEPT = -1
_ABSENT = np.iinfo(np.int64).min
_CALL_LIMIT = 1 << 12
"""Calls with higher numbers keep no arguments; no architecture has as many calls."""
_WORD = 8
_NONE = 0
_OPEN = 1
_OPEN_IN_LAUNCH = 2


class SyscallPairing:
    """Pairs raw_syscalls:sys_enter with sys_exit."""

    sees_others = True

    def __init__(self, context: AssemblyContext) -> None:
        self.schema = context.probe.table.arrow_schema()
        formats = {e.label: context.formats.get(e.name) for e in context.probe.events}
        self._enter = formats["enter"]
        self._exit = formats["exit"]
        self._names = _by_number(context.manifest.get("syscall_names", {}))
        # One value per thread's open call, by thread id; untouched pages cost no memory.
        self._state = np.zeros(PID_LIMIT, np.uint8)
        self._ts = np.zeros(PID_LIMIT, np.int64)
        self._nr = np.zeros(PID_LIMIT, np.int32)
        self._pid = np.zeros(PID_LIMIT, np.int32)
        self._cpu = np.zeros(PID_LIMIT, np.int16)
        # The kept arguments of the open call: those of the event, by thread id.
        self._args = np.zeros((PID_LIMIT, _KEPT), np.int64)
        self._places = _places(self._names)
        self._fcntl = _numbers(self._names, (FCNTL,))
        self._compat_names = _by_number(context.manifest.get("compat_syscall_names", {}))
        # For 64-bit and for 32-bit programs.
        self._execs, self._forks, execve = (
            tuple(_numbers(names, asked) for names in (self._names, self._compat_names))
            for asked in (_EXECS, _FORKS, _EXECS[:1])
        )
        self._execve = tuple(int(numbers[0]) if len(numbers) else _NO_NR for numbers in execve)
        # For each process: the thread that called exec last, and whether it is a 32-bit program.
        self._exec_tid = np.zeros(PID_LIMIT, np.int32)
        self._compat = np.zeros(PID_LIMIT, np.bool_)
        self._compat[[pid for pid in context.manifest.get("compat", ()) if pid < PID_LIMIT]] = True
        # True: the thread's open call is a 32-bit one.
        self._open_compat = np.zeros(PID_LIMIT, np.bool_)

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows of the calls that ended in this batch."""
        if batch.wanted is not None:
            # A call that began before its process joined is no call of the target.
            of_probe = of_probe[batch.wanted[of_probe]]
        n = len(of_probe)
        if not n or self._enter is None or self._exit is None:
            return None
        types = batch.type[of_probe]
        nr = np.zeros(n, np.int64)
        ret = np.zeros(n, np.int64)
        valid = np.zeros(n, np.bool_)
        entries = np.flatnonzero(types == self._enter.id)
        exits = np.flatnonzero(types == self._exit.id)
        columns.integers(batch, of_probe[entries], self._enter.field("id"), nr, valid, entries)
        columns.integers(batch, of_probe[exits], self._exit.field("id"), nr, valid, exits)
        columns.integers(batch, of_probe[exits], self._exit.field("ret"), ret, valid, exits)
        kept = self._arguments(batch, of_probe[entries], nr[entries], n, entries)
        assert batch.launching is not None
        # The exit of an exec ends two calls: its own, and the one that its thread was in.
        out = _Rows(2 * n)
        count = _pair(
            batch.ts[of_probe],
            batch.tid[of_probe],
            batch.pid[of_probe],
            batch.cpu[of_probe],
            types == self._enter.id,
            batch.launching[of_probe],
            nr,
            ret,
            valid,
            kept,
            self._args,
            self._state,
            self._ts,
            self._nr,
            self._pid,
            self._cpu,
            self._execs,
            self._execve,
            self._forks,
            self._exec_tid,
            self._compat,
            self._open_compat,
            out.ts,
            out.cpu,
            out.pid,
            out.tid,
            out.nr,
            out.dur,
            out.ret,
            out.ended,
            out.compat,
            out.args,
        )
        if count and batch.gaps:
            gaps = [gap for gap in batch.gaps if gap.of_scope(Scope.TARGET)]
            starts, ends = out.ts[:count], out.ts[:count] + out.dur[:count]
            out.ended[:count] &= ~overlaps_gaps(starts, ends, gaps)
        return self._batch(out, count) if count else None

    def _arguments(
        self, batch: Batch, rows: NDArray[np.int64], nr: NDArray[np.int64], n: int, places: Any
    ) -> NDArray[np.int64]:
        """Returns the arguments that the rows keep (int64[n, 4]) of entries at `places`."""
        kept = np.full((n, _KEPT), _ABSENT)
        assert self._enter is not None
        args = self._enter.fields.get("args")
        if args is None or args.size % _WORD:
            return kept
        known = np.where((nr >= 0) & (nr < _CALL_LIMIT), nr, _CALL_LIMIT)
        wanted = self._places[known]
        for word in range(args.size // _WORD):
            field = replace(args, offset=args.offset + _WORD * word, size=_WORD)
            for column in range(_KEPT):
                mine = np.flatnonzero(wanted[:, column] == word)
                if len(mine):
                    values, there = columns.integers(batch, rows[mine], field)
                    kept[places[mine], column] = np.where(there, values, _ABSENT)
        controls = places[np.isin(nr, self._fcntl)]
        pointers = controls[~np.isin(kept[controls, FLAGS], FCNTL_NUMBERS)]
        kept[pointers, LENGTH] = _ABSENT
        return kept

    def finish(self) -> pa.RecordBatch | None:
        """Rows of the calls that are still open."""
        tids = np.flatnonzero(self._state == _OPEN)
        if not len(tids):
            return None
        tids = tids[np.argsort(self._ts[tids], kind="stable")]
        out = _Rows(len(tids))
        out.ts[:] = self._ts[tids]
        out.cpu[:] = self._cpu[tids]
        out.pid[:] = self._pid[tids]
        out.tid[:] = tids
        out.nr[:] = self._nr[tids]
        out.ended[:] = False
        out.compat[:] = self._open_compat[tids]
        out.args[:] = self._args[tids]
        self._state[tids] = _NONE
        return self._batch(out, len(tids))

    def _batch(self, out: _Rows, n: int) -> pa.RecordBatch:
        numbers = pa.array(out.nr[:n])
        called = numbers
        if out.compat[:n].any():
            called = pa.array(out.nr[:n] + _COMPAT * out.compat[:n])
        unique = called.dictionary_encode()  # by hashing: np.unique would sort
        names = [self._name(number) for number in unique.dictionary.to_pylist()]
        codes = unique.indices.to_numpy()
        running = ~out.ended[:n]
        mask = running if running.any() else None
        absent = (out.args[:n] == _ABSENT) | out.compat[:n, None]
        fd = out.args[:n, 0].astype(np.int32)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(out.ts[:n]),
                pa.array(out.cpu[:n]),
                pa.array(out.pid[:n]),
                pa.array(out.tid[:n]),
                numbers,
                columns.encoded(codes, np.ones(n, np.bool_), names),
                pa.array(out.dur[:n], mask=mask),
                pa.array(out.ret[:n], mask=mask),
                pa.array(fd, mask=absent[:, 0]),
                *(pa.array(out.args[:n, k], mask=absent[:, k]) for k in range(1, _KEPT)),
            ],
            schema=self.schema,
        )

    def _name(self, number: int) -> str:
        if number < _COMPAT // 2:
            return self._names.get(number, f"syscall_{number}")
        return self._compat_names.get(number - _COMPAT, f"compat_syscall_{number - _COMPAT}")


def _places(names: dict[int, str]) -> NDArray[np.int8]:
    """Returns the places of the kept arguments by call number (int8[calls, 4])."""
    found = np.full((_CALL_LIMIT + 1, _KEPT), _NOT_KEPT, np.int8)
    for number, name in names.items():
        if number >= _CALL_LIMIT:
            continue
        for column, place in enumerate(ARGUMENTS.get(name, ())):
            found[number, column] = _NOT_KEPT if place is None else place
    return found


def _by_number(names: dict[str, str]) -> dict[int, str]:
    return {int(nr): name for nr, name in names.items() if nr.isdecimal() and len(nr) < _DIGITS}


def _numbers(names: dict[int, str], asked: tuple[str, ...]) -> NDArray[np.int64]:
    return np.array(sorted(nr for nr, name in names.items() if name in asked), np.int64)


class _Rows:
    """Columns being filled."""

    def __init__(self, room: int) -> None:
        self.ts = np.empty(room, np.int64)
        self.cpu = np.empty(room, np.int16)
        self.pid = np.empty(room, np.int32)
        self.tid = np.empty(room, np.int32)
        self.nr = np.empty(room, np.int32)
        self.dur = np.zeros(room, np.int64)
        self.ret = np.zeros(room, np.int64)
        self.ended = np.empty(room, np.bool_)
        self.compat = np.zeros(room, np.bool_)
        self.args = np.full((room, _KEPT), _ABSENT)


@compiled
def _pair(
    ts: Any,
    tids: Any,
    pids: Any,
    cpus: Any,
    is_entry: Any,
    launching: Any,
    nr: Any,
    ret: Any,
    valid: Any,
    kept: Any,
    open_args: Any,
    open_state: Any,
    open_ts: Any,
    open_nr: Any,
    open_pid: Any,
    open_cpu: Any,
    execs: Any,
    execve: Any,
    forks: Any,
    exec_tid: Any,
    compat: Any,
    open_compat: Any,
    out_ts: Any,
    out_cpu: Any,
    out_pid: Any,
    out_tid: Any,
    out_nr: Any,
    out_dur: Any,
    out_ret: Any,
    out_ended: Any,
    out_compat: Any,
    out_args: Any,
) -> int:
    n = 0
    some_compat = compat.any()
    for i in range(len(ts)):
        tid = tids[i]
        if not valid[i] or tid < 0 or tid >= len(open_state):
            continue
        state = open_state[tid]
        pid = pids[i] if 0 < pids[i] < len(compat) else 0
        launched = -1  # by an exec: 0 a 64-bit program, 1 a 32-bit one
        if not is_entry[i] and ret[i] == 0:
            launched = 0 if nr[i] == execve[0] else 1 if nr[i] == execve[1] else -1
        returned = (
            not is_entry[i]
            and state != _NONE
            and (
                nr[i] == open_nr[tid]
                or nr[i] == _UNKNOWN_NR
                or (launched >= 0 and _contains(execs[int(open_compat[tid])], open_nr[tid]))
            )
        )
        # The call that was open has either returned now, or never will.
        if (returned and not launching[i]) or (not returned and state == _OPEN):
            out_ts[n] = open_ts[tid]
            out_cpu[n] = open_cpu[tid]
            out_pid[n] = open_pid[tid]
            out_tid[n] = tid
            out_nr[n] = open_nr[tid]
            out_ended[n] = returned
            out_dur[n] = ts[i] - open_ts[tid] if returned else 0
            out_ret[n] = ret[i] if returned else 0
            out_compat[n] = open_compat[tid]
            for k in range(_KEPT):
                out_args[n, k] = open_args[tid, k]
            n += 1
        if returned:
            if launched >= 0 and _contains(execs[int(open_compat[tid])], open_nr[tid]):
                compat[pid] = launched == 1
                some_compat = some_compat or launched == 1
        elif not is_entry[i] and ret[i] == 0 and some_compat and pid == tid:
            # A child's return from its parent's fork.
            if _contains(forks[1], nr[i]):
                compat[pid] = True
            elif _contains(forks[0], nr[i]):
                compat[pid] = False
        if not returned and (launched >= 0 or (not is_entry[i] and ret[i] == 0)):
            caller = exec_tid[tid]
            if (
                caller
                and open_state[caller] == _OPEN
                and (launched >= 0 or nr[i] == open_nr[caller])
                and _contains(execs[int(open_compat[caller])], open_nr[caller])
            ):
                out_ts[n] = open_ts[caller]
                out_cpu[n] = open_cpu[caller]
                out_pid[n] = open_pid[caller]
                out_tid[n] = caller
                out_nr[n] = open_nr[caller]
                out_compat[n] = open_compat[caller]
                out_ended[n] = True
                out_dur[n] = ts[i] - open_ts[caller]
                out_ret[n] = 0
                n += 1
                open_state[caller] = _NONE
                if launched >= 0:
                    compat[pid] = launched == 1
                    some_compat = some_compat or launched == 1
        open_state[tid] = _NONE
        if is_entry[i]:
            open_state[tid] = _OPEN_IN_LAUNCH if launching[i] else _OPEN
            open_ts[tid] = ts[i]
            open_nr[tid] = nr[i]
            open_pid[tid] = pids[i]
            open_cpu[tid] = cpus[i]
            open_compat[tid] = compat[pid]
            for k in range(_KEPT):
                open_args[tid, k] = kept[i, k]
            if pid and _contains(execs[int(compat[pid])], nr[i]):
                exec_tid[pid] = tid
    return n


@compiled
def _contains(numbers: Any, number: int) -> bool:
    found = False
    for one in numbers:
        found = found or one == number
    return found
