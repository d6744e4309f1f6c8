"""The causes of intervals off the CPU, and the waits that each interval is made of.

The rules are SQL. Many intervals are alike in all that the rules ask about, so they are asked once
for each case, unless there are too many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tracer.analysis.views.calls_around import EARLIEST, LATEST
from tracer.analysis.views.calls_by_kind import URING
from tracer.analysis.views.lost_times import Gaps
from tracer.analysis.views.stretches import Ints
from tracer.analysis.views.waiting.sync_parts import FLUSH, JOURNAL, PAGES
from tracer.analysis.views.waiting.wait_rows import CODES
from tracer.probes.schema import Scope
from tracer.store.trace import Trace

# Thread 0 is the idle thread of a CPU.
_KIND = f"""
CASE
    WHEN state IS NULL THEN 'other'
    WHEN state = 'new' OR starts_with(state, 'R') THEN 'cpu'
    WHEN pauses THEN 'dirty'
    WHEN reclaims THEN 'reclaim'
    WHEN of_gpu AND NOT (deep AND faults) THEN 'gpu'
    WHEN stopped AND state = 'S' AND interrupt IS NOT TRUE THEN 'frozen'
    WHEN is_sync OR syncs OR deep AND unmounted AND NOT faults THEN 'sync'
    -- A fault that writes to a mapped file waits for the journal, too.
    WHEN deep AND waker_role = 'journal' AND (interrupt = false OR reads IS NOT TRUE) THEN 'sync'
    WHEN name IS NULL THEN
        CASE WHEN faults THEN 'fault' WHEN deep AND reads THEN 'disk'
            WHEN NOT deep OR NOT calls_known THEN 'other'
            WHEN interrupt THEN 'fault' WHEN interrupt = false THEN 'lock' ELSE 'other' END
    WHEN is_lock THEN 'lock'
    WHEN is_timer THEN 'timer'
    WHEN is_child THEN 'child'
    WHEN (is_poll OR is_aio) AND zero AND interrupt IS DISTINCT FROM false THEN 'timer'
    WHEN deep AND reads THEN 'disk'
    WHEN deep AND faults THEN 'fault'
    WHEN may_lock OR deep AND interrupt = false AND NOT by_kernel THEN 'lock'
    WHEN deep AND wake_ns IS NOT NULL THEN 'disk'
    WHEN is_ipc AND NOT deep THEN 'ipc'
    WHEN (is_aio OR name = '{URING}' AND reads)
        AND (by_kernel OR interrupt IS NOT FALSE) THEN 'disk'
    WHEN may_be_ipc AND NOT deep AND interrupt IS NOT TRUE THEN 'ipc'
    ELSE 'other'
END
"""

# ext4 writes the file's pages, waits for the journal, and then has the device empty its cache. A
# fast commit is written by the thread itself.
_PART_OF_SYNC = f"""
CASE
    WHEN waker_role = 'journal' THEN {CODES[JOURNAL]}
    WHEN NOT deep OR interrupt = false AND NOT by_kernel THEN NULL
    WHEN flushes AND waker_role IS DISTINCT FROM 'flusher' THEN {CODES[FLUSH]}
    WHEN commits THEN {CODES[JOURNAL]}
    WHEN on_ext4 THEN {CODES[PAGES]}
END
"""

_CERTAINTY = """
CASE
    WHEN kind = 'other' THEN 'unknown'
    -- Its end is lost: the thread may have done anything since.
    WHEN end_lost THEN 'inferred'
    WHEN kind = 'cpu' AND NOT idle OR kind = 'reclaim' AND in_doubt THEN 'inferred'
    WHEN kind IN ('cpu', 'dirty', 'reclaim', 'gpu') THEN 'exact'
    WHEN kind = 'fault' AND faults THEN 'exact'
    WHEN call_in_doubt OR kind = 'frozen' THEN 'inferred'
    -- Whoever sends a signal, or freezes the cgroup, need not be what the call waits for.
    WHEN cut_short AND kind IN ('lock', 'child', 'ipc') THEN 'inferred'
    -- The timer did not end the sleep, nor did a signal: the thread was frozen until it was thawed.
    WHEN kind = 'timer' AND is_timer AND zero AND interrupt = false AND NOT by_kernel
        THEN 'inferred'
    WHEN kind IN ('timer', 'child') THEN 'exact'
    WHEN kind = 'sync' AND (is_sync OR syncs) THEN 'exact'
    WHEN kind = 'disk' AND reads AND deep THEN 'exact'
    -- A timer ended the wait: nobody gave up a lock.
    WHEN kind = 'lock' AND is_lock AND interrupt IS NOT TRUE THEN 'exact'
    WHEN kind = 'ipc' AND is_ipc AND interrupt = false THEN 'exact'
    ELSE 'inferred'
END
"""

# An interrupt wakes on behalf of nobody, and a thread of CUDA's driver on behalf of the GPU. Where
# interrupts cannot be told from threads, only the calls that threads end name the waker. A softirq
# in the sender's own call delivers what it sends to a local socket (kernel: loopback_xmit).
_BY_WAKER = """
waker_tid > 0 AND kind != 'gpu' AND (interrupt = false OR interrupt IS NULL
    AND (kind IN ('lock', 'ipc', 'child', 'frozen') OR kind = 'sync' AND by_journal)
    OR kind = 'ipc' AND (sent OR received AND is_sending))
"""

# What follows from the kind is worked out apart: DuckDB puts the whole rule in place of each name
# of a column of the same SELECT, and planning that takes three times as long.
_CASES = f"""
WITH told AS (
    SELECT s.*, state IS NULL OR contains(state, 'D') AS deep, c.*, w.role AS waker_role,
        coalesce(w.kernel, waker_tid = 0) AS by_kernel,
        coalesce(w.role = 'journal', false) AS by_journal
    FROM sleeps_in_calls s
    LEFT JOIN wait_calls c ON s.call = c.code
    LEFT JOIN threads w ON s.waker_life = w.life AND NOT coalesce(interrupt, false)
), kinds AS (SELECT *, {_KIND} AS kind FROM told)
SELECT kind, {_CERTAINTY} AS certainty, coalesce({_BY_WAKER}, false) AS by_waker,
    kind = 'cpu' AS by_cpu, kind = 'disk' AND reads AS of_device,
    kind = 'fault' AND faults AS of_file, kind = 'dirty' AS of_dirtied,
    kind = 'gpu' AS of_gpu,
    CASE WHEN kind = 'sync' THEN {_PART_OF_SYNC} END::INTEGER AS part
FROM kinds ORDER BY "case"
"""

_FLAGS = (
    *("reads", "syncs", "flushes", "on_ext4", "commits", "faults", "pauses", "reclaims"),
    *("in_doubt", "zero", "calls_known", "idle", "of_gpu", "sent", "received"),
    *("call_in_doubt", "unmounted", "cut_short", "stopped", "end_lost"),
)
"""Columns of intervals that are true or false."""
_GIVEN = ["zero", "sent", "received", "cut_short"]
"""Flags that the intervals have as columns."""
_EVIDENCE = {
    "reads": "read_ns",
    "syncs": "sync_ns",
    "flushes": "flush_ns",
    "on_ext4": "ext4_ns",
    "commits": "commit_ns",
}
"""Flags for evidence in the call that an interval lies in, and the columns with its times."""
_MOST_CASES = 1 << 62
_MOST_KEPT = 1 << 14
"""Cases beyond which the answers so far are forgotten: a trace may have one for each interval."""

# Events of reclaim are those of all threads.
_OF_RECLAIM = f"NOT contains(stream, '{Scope.TARGET.value}')"
_OF_CALLS = f"NOT contains(stream, '{Scope.MACHINE.value}')"


class Causes:
    """The rules for the causes of intervals off the CPU."""

    def __init__(self, trace: Trace) -> None:
        """Needs the tables `wait_names`, `wait_calls`, `threads` and `loss`."""
        self._trace = trace
        names = trace.arrow("SELECT name, code FROM wait_names").combine_chunks()
        self._gaps = Gaps(trace, _OF_RECLAIM), Gaps(trace, _OF_CALLS)
        unmounts = trace.arrow("SELECT code FROM wait_calls WHERE unmounts")
        self._unmounts = unmounts["code"].combine_chunks()
        self._names, self._codes = names["name"].combine_chunks(), names["code"].combine_chunks()
        self._calls = _alike(
            trace, f"* EXCLUDE (code, name), name = '{URING}'", "wait_calls", "code"
        )
        self._wakers = _alike(trace, "role, kernel", "threads", "life")
        self._forget()

    def _forget(self) -> None:
        """Forgets the answers of the rules so far."""
        self._places: dict[int, int] = {}
        self._answers: list[pa.Table] = []

    def parts(self, rows: pa.Table) -> pa.Table:
        """Returns the waits of intervals, one or two of each, as rows of `wait_parts`.

        `rows` are those of `Sleeps.batches`. The result has three more columns. `cpu`: the CPU on
        which the thread of a wait for a CPU ran in the end, or if `left` is true, the one in whose
        queue it was at the begin; null: it came late to an idle CPU, or it is not known.
        `in_doubt`: true if the thread may have waited for another CPU, too. A wait for a
        CPU that another thread had is inferred until its turns are known (`cpu_turns.py`).
        """
        rows = _with_flags(rows.combine_chunks(), self._gaps, self._unmounts)
        state = self._codes.take(pc.index_in(rows["state"].combine_chunks(), self._names))
        return _parts(rows, state, self._answered(rows, state))

    def _answered(self, rows: pa.Table, state: pa.Array) -> pa.Table:
        """Returns what the rules answer for each row. They are asked about new cases only."""
        numbers = self._case(rows, state)
        if numbers is None or len(self._places) > _MOST_KEPT:
            self._forget()
        if numbers is None:
            numbers = np.arange(rows.num_rows)
        cases, first, case = np.unique(numbers, return_index=True, return_inverse=True)
        known = len(self._places)
        places = [self._places.setdefault(one, len(self._places)) for one in cases.tolist()]
        new = np.flatnonzero(np.array(places, np.int64) >= known)
        if len(new):
            self._ask(rows.take(pa.array(first[new])))
        return self._encoded.take(pa.array(np.array(places, np.int64)[case]))

    def _ask(self, rows: pa.Table) -> None:
        """Adds what the rules answer for rows to the answers so far."""
        asked = rows.append_column("case", pa.array(np.arange(rows.num_rows)))
        with self._trace.lent("sleeps_in_calls", asked):
            found = self._trace.arrow(_CASES)
        self._answers.append(found)
        found = pa.concat_tables(self._answers)
        for name in ("kind", "certainty"):
            place = found.column_names.index(name)
            found = found.set_column(place, name, found[name].combine_chunks().dictionary_encode())
        self._encoded = found.combine_chunks()

    def _case(self, rows: pa.Table, state: pa.Array) -> Ints | None:
        """Returns a number for each row; None: there are too many.

        Rows of the same number are alike for the rules.
        """
        found, size = np.zeros(rows.num_rows, np.int64), 1
        waker = rows["waker_tid"].to_numpy()  # NaN for null
        told = [(_ints(rows[name]), 2) for name in _FLAGS]
        calls = self._calls[_ints(rows["call"])]
        wakers = self._wakers[pc.fill_null(rows["waker_life"], 0).to_numpy()]
        told += [
            (_ints(rows["interrupt"]), 3),
            (rows["wake_ns"].is_null().to_numpy().astype(np.int64), 2),
            (np.where(waker > 0, 2, np.where(waker == 0, 1, 0)), 3),
            (calls, int(self._calls.max()) + 1),
            (wakers, int(self._wakers.max()) + 1),
            (_ints(state), len(self._names) + 1),
        ]
        for values, most in told:
            found = found * most + values
            size *= most
        return found if size < _MOST_CASES else None


def _alike(trace: Trace, what: str, table: str, key: str) -> Ints:
    """Returns a number from 1 for each row of a table, in the order of `key`; first a 0, for null.

    Rows of the same number are alike in `what`, columns of the table.
    """
    rows = trace.sql(f"SELECT {what} FROM {table} ORDER BY {key}")
    numbers = rows.groupby(list(rows.columns), dropna=False).ngroup().to_numpy(np.int64)
    return np.append(0, numbers + 1)


def _ints(column: pa.Array | pa.ChunkedArray) -> Ints:
    """Returns values from 0 as numbers from 1, null as 0. Booleans without a null keep theirs."""
    if pa.types.is_boolean(column.type) and not column.null_count:
        return np.asarray(column.to_numpy()).astype(np.int64)
    return np.asarray(pc.fill_null(pc.add(column.cast(pa.int64()), 1), 0).to_numpy())


def _with_flags(rows: pa.Table, gaps: tuple[Gaps, Gaps], unmounts: pa.Array) -> pa.Table:
    """Adds the columns `_FLAGS`.

    `gaps`: in events of reclaim, and in system calls. `unmounts`: codes of calls that unmount.
    """
    flags = {flag: pc.less_equal(rows[column], rows["ts"]) for flag, column in _EVIDENCE.items()}
    entered, returned, since = (rows[name] for name in ("entered", "returned", "since"))
    slept = pc.coalesce(rows["slept_ns"], pa.scalar(EARLIEST))
    own_read = pc.and_(pc.greater(rows["own_read_ns"], slept), pc.is_null(entered))
    flags["reads"] = pc.or_kleene(flags["reads"], own_read)
    # A fault lasts until the call that it happened in returns, or until the next call.
    fault, pause = rows["fault_ns"], rows["pause_ns"]
    flags["faults"] = pc.greater_equal(fault, pc.coalesce(entered, returned, since, fault))
    since = pc.coalesce(pc.max_element_wise(since, entered), pause)
    flags["pauses"] = pc.greater_equal(pause, since)
    flags["reclaims"], flags["in_doubt"] = _reclaims(rows, gaps[0])
    # Its return may be lost, and the entry of another call.
    flags["call_in_doubt"] = pc.and_(
        rows["open"],
        pa.array(
            gaps[1].between(pc.fill_null(entered, EARLIEST).to_numpy(), rows["ts"].to_numpy())
        ),
    )
    later = gaps[1].between(rows["ts"].to_numpy(), np.full(rows.num_rows, LATEST))
    flags["end_lost"] = pc.and_(pc.is_null(rows["dur_ns"]), pa.array(later))
    # A cgroup of version 2 stops its threads outside of calls, which it interrupts (kernel:
    # do_freezer_trap). Nothing else puts them to sleep there, unless the entry of a call is lost.
    left = pc.fill_null(returned, EARLIEST).to_numpy()
    lost = gaps[1].between(left, rows["ts"].to_numpy())
    flags["stopped"] = pc.and_(
        pc.and_(pc.is_null(entered), rows["cut_short"]), pa.array(~lost & (left > EARLIEST))
    )
    # The file system is written out after the call returned, before the thread runs on.
    flags["unmounted"] = pc.is_in(rows["call_before"], unmounts)
    flags |= {name: rows[name] for name in _GIVEN}
    flags["of_gpu"] = pc.greater(rows["gpu_until"], rows["ts"])
    # A thread that was moved to an idle CPU waited for another one until then.
    flags["idle"] = pc.and_(_was_idle(rows), pc.invert(_moved(rows)))
    device = pc.coalesce(rows["device"], rows["own_device"])
    rows = rows.drop_columns([*_GIVEN, "open", "device"]).append_column("device", device)
    for name, flag in flags.items():
        rows = rows.append_column(name, pc.fill_null(flag, False))
    return rows


def _was_idle(rows: pa.Table) -> pa.ChunkedArray:
    """Returns which threads ran on a CPU that was idle before. Thread 0 is its idle thread."""
    return pc.fill_null(pc.equal(rows["ran_tid"], 0), False)


def _moved(rows: pa.Table) -> pa.ChunkedArray:
    """Returns which threads ran on another CPU than the one that they had left, or were put on.

    No event tells when such a thread came to the CPU on which it ran.
    """
    stayed = pc.fill_null(pc.equal(rows["cpu"], rows["ran_cpu"]), False)
    return pc.and_(pc.is_valid(rows["ran_cpu"]), pc.invert(stayed))


def _reclaims(rows: pa.Table, gaps: Gaps) -> tuple[pa.Array, pa.Array]:
    """Returns which threads are within a reclaim, and of which this is not certain.

    A reclaim lasts no longer than the call or the fault that it began in. If its end may be lost,
    an end must be the next event of reclaim.
    """
    names = ("reclaim_ns", "entered", "returned", "fault_ns")
    began, entered, returned, fault = (
        pc.fill_null(rows[name], EARLIEST).to_numpy() for name in names
    )
    begins, ends = (pc.fill_null(rows[name], False).to_numpy() for name in ("begins", "ends"))
    lasts = begins & (began >= np.maximum(np.maximum(entered, returned), fault))
    in_doubt = gaps.between(began, rows["ts"].to_numpy())
    return pa.array(lasts & (ends | ~in_doubt)), pa.array(lasts & ends & in_doubt)


def _parts(rows: pa.Table, state: pa.Array, cases: pa.Table) -> pa.Table:
    """Returns the waits of intervals, whose states are given as codes.

    An interval is a wait until the thread was woken, and one from then until it ran.
    """
    nothing = pa.scalar(None, pa.int32())
    length, by_cpu = rows["dur_ns"], cases["by_cpu"]
    late = pc.and_(pc.greater(rows["run_delay_ns"], 0), pc.less_equal(rows["run_delay_ns"], length))
    delay = pc.if_else(
        pc.and_(late, pc.invert(by_cpu)), rows["run_delay_ns"], pa.scalar(None, pa.int64())
    )
    detail = cases["part"]
    for name, flag in (
        ("device", "of_device"),
        ("file", "of_file"),
        ("dirtied", "of_dirtied"),
        ("gpu", "of_gpu"),
    ):
        detail = pc.if_else(cases[flag], rows[name], detail)
    idle = _was_idle(rows)
    ran_tid, ran_life = (pc.if_else(idle, nothing, rows[name]) for name in ("ran_tid", "ran_life"))
    no_cpu = pa.scalar(None, pa.int16())
    cpu, moved = pc.if_else(idle, no_cpu, rows["ran_cpu"]), _moved(rows)
    # It did not sleep, so it was in the queue of the CPU that it left, or that it was put on.
    left = pc.and_(pc.and_(idle, moved), by_cpu)
    by = cases["by_waker"]
    first = pa.table(
        {
            "row": rows["row"],
            "ts": rows["ts"],
            "dur_ns": pc.subtract(length, pc.fill_null(delay, 0)),
            "pid": rows["pid"],
            "tid": rows["tid"],
            "life": rows["life"],
            "kind": cases["kind"],
            "detail": detail,
            "call": rows["call"],
            "state": state,
            "by_tid": pc.if_else(by_cpu, ran_tid, pc.if_else(by, rows["waker_tid"], nothing)),
            "by_life": pc.if_else(by_cpu, ran_life, pc.if_else(by, rows["waker_life"], nothing)),
            "certainty": cases["certainty"],
            "cpu": pc.if_else(left, rows["cpu"], pc.if_else(by_cpu, cpu, no_cpu)),
            "in_doubt": moved,
            "left": left,
        }
    ).filter(pc.or_kleene(pc.is_null(delay), pc.less(delay, length)))
    count = rows.num_rows
    then = pa.table(
        {
            "row": rows["row"],
            "ts": rows["wake_ns"],
            "dur_ns": delay,
            "pid": rows["pid"],
            "tid": rows["tid"],
            "life": rows["late_life"],
            "kind": named(np.zeros(count), "cpu"),
            "detail": pa.nulls(count, pa.int32()),
            "call": rows["call"],
            "state": pa.repeat(pa.scalar(CODES["R"], pa.int32()), count),
            "by_tid": ran_tid,
            "by_life": ran_life,
            "certainty": named(pc.invert(rows["idle"]).to_numpy(), "exact", "inferred"),
            "cpu": cpu,
            "in_doubt": moved,
            "left": pa.repeat(pa.scalar(False), count),
        }
    ).filter(pc.is_valid(delay))
    return pa.concat_tables([first, then])


def named(which: NDArray[Any], *names: str) -> pa.DictionaryArray:
    """Returns the name at each of these places among `names`."""
    return pa.DictionaryArray.from_arrays(which.astype(np.int32), list(names))
