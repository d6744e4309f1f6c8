"""The rows of waits as they are kept: numbers for names and threads, in the order of `off_cpu`.

A long recording has millions of waits. A row with its texts takes some 300 bytes, with numbers 45.
`wait_events` puts the texts back as it is read. Waits that were split are in a table of their own,
since a table of millions of rows is neither sorted nor copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracer.analysis.views.calls_by_kind import (
    AIO,
    CHILD,
    IPC,
    LOCK,
    MAYBE_IPC,
    MAYBE_LOCK,
    POLL,
    RECEIVING,
    SENDING,
    SYNC,
    TIMER,
    UNMOUNT,
)
from tracer.analysis.views.threads import owns
from tracer.analysis.views.view import apart
from tracer.analysis.views.waiting.sync_parts import AWAITED, DATA, JOURNAL, split
from tracer.analysis.views.waiting.throttled import LEAST_NS
from tracer.store.database import ROW_GROUP, integer_type
from tracer.store.trace import Trace

KINDS = (
    *("cpu", "throttled", "dirty", "reclaim", "sync", "fault", "lock", "timer", "child", "disk"),
    *("ipc", "gpu", "frozen", "other"),
)
"""All kinds of waits."""

CODES = {name: code for code, name in enumerate((*AWAITED, "R"))}
"""Codes of names that are known beforehand, in the table `wait_names`."""

CALLS = "syscalls LEFT JOIN wait_calls USING (name)"
"""The system calls with their codes."""
CALL_CODE = "coalesce(code, -1)::INTEGER"
"""SQL for the code of the name of a row of `CALLS`; -1: it has none."""

_NAMES = f"""
CREATE OR REPLACE TEMP TABLE wait_names AS
SELECT unnest({list(CODES)}) AS name, unnest({list(CODES.values())})::INTEGER AS code
UNION ALL
SELECT name, (row_number() OVER () + {len(CODES)} - 1)::INTEGER FROM (
    SELECT DISTINCT state AS name FROM off_cpu
    UNION
    SELECT DISTINCT detail FROM wait_evidence
    UNION
    SELECT DISTINCT call FROM gpu_wait_rows
) WHERE name NOT IN {tuple(CODES)}
"""

_CALLS = f"""
CREATE OR REPLACE TEMP TABLE wait_calls AS
SELECT (row_number() OVER () - 1)::INTEGER AS code, name, name IN {SYNC} AS is_sync,
    name IN {UNMOUNT} AS unmounts,
    name IN {LOCK} AS is_lock, name IN {TIMER} AS is_timer, name IN {CHILD} AS is_child,
    name IN {POLL} AS is_poll, name IN {IPC} AS is_ipc, name IN {MAYBE_LOCK} AS may_lock,
    name IN {AIO} AS is_aio, name IN {MAYBE_IPC} AS may_be_ipc,
    name IN {SENDING} AS is_sending, name IN {RECEIVING} AS is_receiving
FROM (SELECT DISTINCT name FROM syscalls WHERE name IS NOT NULL)
"""

KIND = f"ENUM {KINDS}"
CERTAINTY = "ENUM ('exact', 'inferred', 'unknown')"
"""DuckDB's types of two columns: a byte per row."""

_PARTS = f"""
CREATE OR REPLACE TEMP TABLE {{table}} (
    row {{row}}, ts BIGINT, dur_ns BIGINT, pid INTEGER, tid INTEGER, life {{life}}, kind {KIND},
    detail {{name}}, call {{call}}, state {{name}}, by_tid INTEGER, by_life {{life}},
    certainty {CERTAINTY}
)
"""

_COUNTED = {"row": "off_cpu", "life": "threads", "name": "wait_names", "call": "wait_calls"}
"""Numbers in rows of waits, and the tables whose rows they count."""

_SYNCS = f"""
CREATE OR REPLACE TEMP TABLE sync_waits AS
SELECT * REPLACE (kind::VARCHAR AS kind, certainty::VARCHAR AS certainty, '{JOURNAL}' AS detail)
FROM journal_waits
"""

_OWNERS = """
CREATE OR REPLACE TEMP TABLE wait_owners AS
SELECT (row_number() OVER () - 1)::INTEGER AS number, * FROM data_owners
"""

# An idle CPU takes a thread that can run at once, unless its cgroup may not run. Thread 0 is the
# idle thread of a CPU. Nobody knows for whom a thread waited that came to another CPU, idle or not.
_LATE = f"""
CREATE OR REPLACE TEMP TABLE throttled_late AS
WITH late AS (
    SELECT p.row, p.ts, o.target, {apart("p.ts", f"-{LEAST_NS}")} AS moment
    FROM (
        SELECT * FROM wait_parts ANTI JOIN throttled_pieces USING (row, ts, kind)
        UNION ALL BY NAME
        SELECT * FROM throttled_waits
    ) p JOIN threads o ON {owns("o", "p")}
    SEMI JOIN (SELECT row FROM off_cpu_rows WHERE ran_tid = 0) i ON p.row = i.row
    WHERE p.kind = 'cpu' AND p.by_tid IS NULL AND p.dur_ns >= {LEAST_NS}
)
SELECT l.row, l.ts FROM late l
ASOF JOIN throttled_times q ON l.target = q.target AND l.moment <= q.upto
WHERE l.moment >= q.since
"""

_JUDGED = f"""
SELECT p.* REPLACE (if(t.row IS NULL, p.kind::VARCHAR, 'throttled')::{KIND} AS kind,
    if(t.row IS NULL, p.certainty::VARCHAR, 'inferred')::{CERTAINTY} AS certainty)
FROM {{rows}} p LEFT JOIN throttled_late t ON p.row = t.row AND p.ts = t.ts
"""
_THROTTLED_PARTS = f"""
CREATE OR REPLACE TEMP TABLE throttled_parts AS
{_JUDGED.format(rows="(FROM wait_parts ANTI JOIN throttled_pieces USING (row, ts, kind))")}
"""
_ALSO_THROTTLED = f"UNION ALL BY NAME {_JUDGED.format(rows='throttled_waits')}"
"""Joined to the pieces of a trace with times in which a quota was used up."""

_PIECES = f"""
CREATE OR REPLACE TEMP TABLE wait_pieces AS
SELECT row, p.ts, dur_ns, p.pid, p.tid, life, kind::{KIND} AS kind, n.code AS detail, call, state,
    by_tid, by_life, certainty::{CERTAINTY} AS certainty, w.number AS owner
FROM (SELECT * FROM sync_waits {{more}}) p LEFT JOIN wait_names n ON p.detail = n.name
LEFT JOIN (SELECT row AS of_row, ts AS of_ts, number FROM wait_owners) w
    ON row = of_row AND p.ts = of_ts AND p.detail = '{DATA}'
ORDER BY p.ts, p.tid, row
"""

_ROWS = """
CREATE OR REPLACE TEMP VIEW wait_rows AS
SELECT *, NULL::INTEGER AS owner FROM wait_parts
UNION ALL BY NAME
FROM wait_pieces
"""

_EVENTS = """
CREATE OR REPLACE TEMP VIEW wait_events AS
SELECT w.ts, w.dur_ns, w.pid, w.tid, w.kind::VARCHAR AS kind, d.name AS detail, c.name AS call,
    s.name AS state, b.pid AS by_pid, w.by_tid, b.comm AS by_comm, b.target AS by_target,
    b.container AS by_container, w.certainty::VARCHAR AS certainty, o.for_pid, o.for_comm,
    o.for_target, o.for_container, l.line, l.stack, k.kernel_stack
FROM wait_rows w {joins}
"""

JOINS = """
LEFT JOIN wait_names d ON w.detail = d.code
LEFT JOIN wait_calls c ON w.call = c.code
LEFT JOIN threads b ON w.by_life = b.life
LEFT JOIN wait_owners o ON w.owner = o.number
LEFT JOIN waiting_lines l ON w.row = l.row
"""
"""Joins of rows w, which have the columns of `wait_rows`, with what their numbers stand for."""

JOIN_STACKS = "LEFT JOIN sleeping_stacks k ON w.row = k.row"
"""Join of the same rows with their kernel stacks."""

_STACKS = """
CREATE OR REPLACE TEMP TABLE sleeping_stacks AS
SELECT row, kernel_stack FROM off_cpu_rows WHERE kernel_stack IS NOT NULL
"""

_ON_THE_WAY = ("journal_waits", "sync_waits", "data_owners", "throttled_waits", "throttled_pieces")


def make_wait_tables(trace: Trace) -> None:
    """Makes the tables of names, and the empty tables wait_parts and journal_waits. Needs
    wait_evidence and gpu_wait_rows.

    `wait_names` (name, code) has states and details, `wait_calls` (code, name, and a column per
    kind of call) the system calls.
    """
    trace.execute(_NAMES, _CALLS)
    types = number_types(trace)
    tables = [_PARTS.format(table=table, **types) for table in ("wait_parts", "journal_waits")]
    trace.execute(*tables)


def number_types(trace: Trace, **more: str) -> dict[str, str]:
    """Returns DuckDB's types for numbers of rows of `off_cpu` (row), of threads (life), and for the
    codes of names (name) and of calls (call): short ones, since DuckDB spills tables of waits.

    `more` has other numbers, and the tables whose rows they count. Needs these tables, `threads`,
    `wait_names` and `wait_calls`.
    """
    tables = _COUNTED | more
    counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in tables.values())
    (found,) = trace.rows(f"SELECT {counts}")
    return dict(zip(tables, map(integer_type, found), strict=True))


def fill_wait_tables(trace: Trace, parts: Iterable[pa.Table]) -> None:
    """Adds waits to journal_waits if they are for the journal, and the others to wait_parts.

    The former are looked at again, and a table of millions of rows is slow to search.
    """
    waiting: list[pa.Table] = []

    def others() -> Iterator[pa.Table]:
        for rows in parts:
            detail = np.asarray(pc.fill_null(rows["detail"], -1).to_numpy())
            at = np.flatnonzero(detail == CODES[JOURNAL])
            kind = rows["kind"].take(pa.array(at)).cast(pa.string())
            # A file or a device may have the name of a detail of syncs.
            at = at[pc.equal(kind, "sync").to_numpy()]
            if len(at):
                waiting.append(rows.take(pa.array(at)))
                kept = np.ones(len(rows), np.bool_)
                kept[at] = False
                rows = rows.filter(pa.array(kept))
            if sum(map(len, waiting)) >= ROW_GROUP:
                trace.append("journal_waits", waiting)
                waiting.clear()
            yield rows

    trace.append("wait_parts", others())
    trace.append("journal_waits", waiting)


def split_syncs(trace: Trace) -> None:
    """Makes sync_waits: the waits for the journal, split by what its thread did."""
    trace.execute(_SYNCS)
    split(trace)


def make_wait_events(trace: Trace) -> None:
    """Makes the view wait_events of the waits in wait_parts, and of those that were split."""
    trace.execute(_OWNERS)
    trace.execute(_STACKS)
    quotas = trace.rows("SELECT 1 FROM throttled_times LIMIT 1")
    if quotas:
        trace.execute(_LATE)
    trace.execute(_PIECES.format(more=_ALSO_THROTTLED if quotas else ""))
    if quotas:
        trace.execute(_THROTTLED_PARTS)
        trace.drop("wait_parts")
        trace.execute("ALTER TABLE throttled_parts RENAME TO wait_parts")
    trace.execute(_ROWS)
    trace.drop(*_ON_THE_WAY, "throttled_late")
    joins = f"{JOINS} {JOIN_STACKS} LEFT JOIN wait_names s ON w.state = s.code"
    trace.execute(_EVENTS.format(joins=joins))
