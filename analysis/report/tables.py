"""The tables of a report: each a function of a trace that returns a frame.

A table whose events were not recorded is absent from the report, never empty or 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from analysis.report.faults import fault_causes, page_faults
from analysis.report.perf import call_chains, call_graphs, counters
from analysis.report.samples import samples
from analysis.report.step_times import step_times
from analysis.report.summaries import summaries
from analysis.views.flushes import flushes
from analysis.views.requests import requests
from probes.catalogue import PROBES
from tracer.store.trace import Trace

ROLES = ("target", "child", "daemon", "flusher", "journal", "other")

_ROLE_OF_THREAD = """
    SELECT tid, CASE WHEN count(DISTINCT role) = 1 THEN any_value(role) ELSE 'other' END AS role,
           arg_max(comm, coalesce(start_ns, 0)) AS comm
    FROM processes GROUP BY tid
"""

_MINE = "('target', 'child')"


def event_counts(trace: Trace) -> pd.DataFrame:
    """Events by the role of the thread in whose context they happened (seed 001, Table 5).

    Columns: event (SYSTEM:EVENT), one column a role, total; null for an event that the kernel
    of the recording lacked. Needs table processes.
    """
    trace.require("processes")
    recorded = trace.manifest["ftrace"].get("formats") or {}
    parts = []
    for probe in PROBES.values():
        if probe.table.name not in trace.tables or probe.name == "processes":
            continue
        # One row of these tables is one event; a call is its entry.
        label = {"syscalls": "'enter'", "page_faults": "if(user, 'user', 'kernel')"}
        source = label.get(probe.table.name, "event")
        found = trace.sql(
            f"SELECT e.event, coalesce(t.role, 'other') AS role, sum(e.n)::BIGINT AS n "
            f'FROM (SELECT {source} AS event, tid, count(*) AS n FROM "{probe.table.name}" '
            f"GROUP BY ALL) e LEFT JOIN ({_ROLE_OF_THREAD}) t ON e.tid = t.tid GROUP BY ALL"
        )
        names: dict[str, str] = {}
        for event in probe.events:
            if event.label not in names or event.name in recorded:
                names[event.label] = event.name
        wide = found.pivot_table(
            index="event", columns="role", values="n", aggfunc="sum", fill_value=0
        )
        for one, name in names.items():
            if (probe.name, one) == ("syscalls", "exit"):
                continue
            counts = wide.loc[one].to_dict() if one in wide.index else {}
            if name not in recorded and not counts:
                parts.append({"event": name})
                continue
            row: dict[str, Any] = {"event": name}
            row |= {role: int(counts.get(role, 0)) for role in ROLES}
            row["total"] = sum(row[role] for role in ROLES)
            parts.append(row)
    frame = pd.DataFrame(parts, columns=["event", *ROLES, "total"])
    return frame.astype(dict.fromkeys([*ROLES, "total"], "Int64"))


def syscalls(trace: Trace) -> pd.DataFrame:
    """System calls of the targets by name, most time first.

    Columns: name, calls, errors, unfinished (did not return), total_s, mean_us, p50_us, p99_us,
    max_us. Time is wall time in the call, waiting included.
    """
    trace.require("syscalls")
    return trace.sql(
        """
        SELECT name, count(*) AS calls,
            count(*) FILTER (ret BETWEEN -4095 AND -1) AS errors,
            count(*) FILTER (dur_ns IS NULL) AS unfinished,
            sum(dur_ns) / 1e9 AS total_s,
            avg(dur_ns) / 1e3 AS mean_us,
            quantile_cont(dur_ns, 0.5) / 1e3 AS p50_us,
            quantile_cont(dur_ns, 0.99) / 1e3 AS p99_us,
            max(dur_ns) / 1e3 AS max_us
        FROM syscalls GROUP BY name ORDER BY total_s DESC NULLS LAST, calls DESC, name
        """
    )


def writeback_reasons(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Write-backs by reason (seed 001, Tables 9 and 10), of one device or of all.

    Columns: reason, writebacks (writeback_start events), ratio (of all of them; sums to 1).
    """
    trace.require("writeback")
    return trace.sql(
        """
        SELECT reason, count(*) AS writebacks, count(*) / sum(count(*)) OVER () AS ratio
        FROM writeback WHERE event = 'start' AND (? IS NULL OR bdi = ?)
        GROUP BY reason ORDER BY writebacks DESC, reason
        """,
        dev,
        dev,
    )


def flushed_pages(trace: Trace) -> pd.DataFrame:
    """Pages written to devices by reason and certainty, the recorder's own apart.

    Columns: reason, certainty, bios, pages (4096 bytes), ratio (of all pages; sums to 1), own_pages
    (of files that the recorder wrote).
    """
    view = flushes(trace)
    return trace.sql(
        f"""
        SELECT reason, certainty, count(*) AS bios, sum(pages)::BIGINT AS pages,
            sum(pages) / sum(sum(pages)) OVER () AS ratio,
            coalesce(sum(pages) FILTER (own), 0)::BIGINT AS own_pages
        FROM {view} GROUP BY ALL ORDER BY pages DESC, reason
        """
    )


def writeback_intervals(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Times between successive write-back starts on one device (seed 001, Figure 3).

    `dev` is the only backing device that counts; None: all of them, each by itself.

    Columns: reason ("all": whatever the reason), intervals, mean_s, std_s, min_s, p50_s, p90_s,
    p99_s, max_s. The standard deviation is the sample's; null for fewer than two intervals.
    """
    trace.require("writeback")
    return trace.sql(
        """
        WITH starts AS (
            SELECT ts, bdi, reason FROM writeback
            WHERE event = 'start' AND (? IS NULL OR bdi = ?)
        ),
        gaps AS (
            SELECT 'all' AS reason, (ts - lag(ts) OVER (PARTITION BY bdi ORDER BY ts)) / 1e9 AS s
            FROM starts
            UNION ALL
            SELECT reason, (ts - lag(ts) OVER (PARTITION BY bdi, reason ORDER BY ts)) / 1e9
            FROM starts
        )
        SELECT reason, count(s) AS intervals, avg(s) AS mean_s, stddev_samp(s) AS std_s,
            min(s) AS min_s, quantile_cont(s, 0.5) AS p50_s, quantile_cont(s, 0.9) AS p90_s,
            quantile_cont(s, 0.99) AS p99_s, max(s) AS max_s
        FROM gaps GROUP BY reason HAVING count(s) > 0
        ORDER BY reason != 'all', intervals DESC, reason
        """,
        dev,
        dev,
    )


def writeback_interval_quantiles(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """How the times between successive write-back starts are spread, whatever their reason.

    `dev` as for `writeback_intervals`. Columns: share (0 to 1 in steps of a fiftieth), interval_s
    (the quantile at that share). Empty where there are fewer than two starts.
    """
    trace.require("writeback")
    shares = [step / 50 for step in range(51)]
    return trace.sql(
        f"""
        WITH gaps AS (
            SELECT (ts - lag(ts) OVER (PARTITION BY bdi ORDER BY ts)) / 1e9 AS s FROM writeback
            WHERE event = 'start' AND (? IS NULL OR bdi = ?)
        ), spread AS (
            SELECT quantile_cont(s, {shares}) AS spread FROM gaps HAVING count(s) > 0
        )
        SELECT unnest({shares}) AS share, unnest(spread) AS interval_s FROM spread ORDER BY share
        """,
        dev,
        dev,
    )


def block_latency(trace: Trace) -> pd.DataFrame:
    """Block requests by device and operation.

    Columns: dev, operation, requests, bytes, unfinished (no completion seen), errors; queue_*
    (queued to issued) and service_* (issued to completed): mean_ms, p50_ms, p99_ms, max_ms.
    """
    view = requests(trace)

    def latency(name: str) -> str:
        # Sums of whole ns: the same whatever the order in which threads add them.
        ns = f"{name}_latency_ns"
        return (
            f"avg({ns}) / 1e6 AS {name}_mean_ms, quantile_cont({ns}, 0.5) / 1e6 AS {name}_p50_ms, "
            f"quantile_cont({ns}, 0.99) / 1e6 AS {name}_p99_ms, max({ns}) / 1e6 AS {name}_max_ms"
        )

    return trace.sql(
        f"""
        SELECT dev, operation, count(*) AS requests, sum(nr_sector * 512)::BIGINT AS bytes,
            count(*) FILTER (complete_ns IS NULL) AS unfinished,
            count(*) FILTER (error != 0) AS errors,
            {latency("queue")}, {latency("service")}
        FROM {view} GROUP BY dev, operation ORDER BY requests DESC, dev, operation
        """
    )


def phases(trace: Trace) -> pd.DataFrame:
    """Phases by name: how many, how long, and what the kernel did for them meanwhile.

    Columns: name, count, processes, epochs and steps (distinct numbers marked in the phase or
    inside it), unfinished (never ended), total_s, mean_ms, p50_ms, p99_ms; calls, call_s and
    faults of the phase's own thread while it lasted; written_pages of the whole machine while
    any phase of that name lasted, without those of the recorder's own files. Null: not recorded,
    or marked by a thread that the kernel knows by another number (in a container).
    A call belongs to the phase that it was entered in.
    """
    trace.require("phases")
    for table in ("syscalls", "page_faults", "processes"):
        trace.empty_if_missing(table)
    written = "SELECT NULL::BIGINT AS ts, NULL::BIGINT AS pages WHERE false"
    if "block" in trace.tables:
        written = f"SELECT ts, pages FROM {flushes(trace)} WHERE NOT own"
    frame = trace.sql(_PHASES.replace("{written}", written))
    for column, table in (
        ("calls", "syscalls"),
        ("call_s", "syscalls"),
        ("faults", "page_faults"),
        ("written_pages", "block"),
    ):
        if table not in trace.tables:
            frame[column] = None
    return frame


_PHASES = """
WITH spans AS (
    SELECT row_number() OVER () AS id, start, coalesce("end", 9223372036854775807) AS ended,
        "end", pid, tid, name, epoch, step,
        (SELECT count(*) FROM processes) = 0
            OR (pid, tid) IN (SELECT (pid, tid) FROM processes) AS known
    FROM phases
),
inner_marks AS (
    -- Numbers marked on a phase, or on any phase inside it on the same thread.
    SELECT o.id, o.name, o.pid, i.epoch, i.step
    FROM (SELECT DISTINCT name, pid, tid, id, start, ended FROM spans) o
    JOIN (SELECT pid, tid, start, epoch, step FROM spans
          WHERE epoch IS NOT NULL OR step IS NOT NULL) i
        ON o.pid = i.pid AND o.tid = i.tid AND i.start >= o.start AND i.start <= o.ended
),
worker AS (
    -- A DataLoader's worker has the numbers of the steps that it fetches for.
    SELECT pid, bool_and(name = 'fetch') AS fetches_only FROM spans GROUP BY pid
),
numbers AS (
    SELECT name, count(DISTINCT (pid, epoch)) FILTER (epoch IS NOT NULL) AS epochs,
        count(DISTINCT (pid, epoch, step)) FILTER (step IS NOT NULL) AS steps
    FROM inner_marks JOIN worker USING (pid)
    WHERE NOT fetches_only OR (SELECT bool_and(fetches_only) FROM worker)
    GROUP BY name
),
calls AS (
    SELECT tid, ts, row_number() OVER w AS n, sum(coalesce(dur_ns, 0)) OVER w AS dur
    FROM syscalls SEMI JOIN spans USING (tid)
    WINDOW w AS (PARTITION BY tid ORDER BY ts ROWS UNBOUNDED PRECEDING)
),
faults AS (
    SELECT tid, ts, row_number() OVER (PARTITION BY tid ORDER BY ts) AS n
    FROM page_faults SEMI JOIN spans USING (tid)
),
written AS (
    SELECT ts, sum(pages) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING) AS n FROM ({written})
),
islands AS (
    -- Phases of one name that overlap, in one process or several, are one stretch of time.
    SELECT name, start, ended, sum(apart) OVER (PARTITION BY name ORDER BY start, ended) AS island
    FROM (
        SELECT name, start, ended, coalesce(start > max(ended) OVER (
            PARTITION BY name ORDER BY start, ended
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), true)::INT AS apart
        FROM spans
    )
),
stretches AS (
    SELECT name, min(start) AS start, max(ended) AS ended FROM islands GROUP BY name, island
),
pages AS (
    SELECT s.name, sum(coalesce(w2.n, 0) - coalesce(w1.n, 0))::BIGINT AS n
    FROM stretches s
    ASOF LEFT JOIN written w1 ON s.start > w1.ts
    ASOF LEFT JOIN written w2 ON s.ended >= w2.ts
    GROUP BY s.name
),
costs AS (
    SELECT s.id, s.name, s.pid, s."end", s.start,
        CASE WHEN s.known THEN coalesce(c2.n, 0) - coalesce(c1.n, 0) END AS calls,
        CASE WHEN s.known THEN coalesce(c2.dur, 0) - coalesce(c1.dur, 0) END AS call_ns,
        CASE WHEN s.known THEN coalesce(f2.n, 0) - coalesce(f1.n, 0) END AS faults
    FROM spans s
    ASOF LEFT JOIN calls c1 ON s.tid = c1.tid AND s.start > c1.ts
    ASOF LEFT JOIN calls c2 ON s.tid = c2.tid AND s.ended >= c2.ts
    ASOF LEFT JOIN faults f1 ON s.tid = f1.tid AND s.start > f1.ts
    ASOF LEFT JOIN faults f2 ON s.tid = f2.tid AND s.ended >= f2.ts
)
SELECT c.name, count(*) AS count, count(DISTINCT c.pid) AS processes,
    coalesce(any_value(n.epochs), 0) AS epochs, coalesce(any_value(n.steps), 0) AS steps,
    count(*) FILTER (c."end" IS NULL) AS unfinished,
    sum(c."end" - c.start) / 1e9 AS total_s,
    avg(c."end" - c.start) / 1e6 AS mean_ms,
    quantile_cont(c."end" - c.start, 0.5) / 1e6 AS p50_ms,
    quantile_cont(c."end" - c.start, 0.99) / 1e6 AS p99_ms,
    sum(c.calls)::BIGINT AS calls, sum(c.call_ns) / 1e9 AS call_s, sum(c.faults)::BIGINT AS faults,
    any_value(p.n) AS written_pages
FROM costs c LEFT JOIN numbers n ON c.name = n.name LEFT JOIN pages p ON c.name = p.name
GROUP BY c.name ORDER BY min(c.start), c.name
"""


def loss(trace: Trace) -> pd.DataFrame:
    """Gaps: stream, cpu, from_s and to_s since the start, count (null: unknown), cause."""
    trace.require("loss")
    start = int(trace.manifest["clock"]["start_ns"])
    return trace.sql(
        'SELECT stream, cpu, ("from" - ?) / 1e9 AS from_s, ("to" - ?) / 1e9 AS to_s, '
        'count, cause FROM loss ORDER BY "from" NULLS FIRST',
        start,
        start,
    )


TABLES: dict[str, tuple[Callable[[Trace], pd.DataFrame], tuple[str, ...]]] = {
    "event_counts": (event_counts, ("processes",)),
    "syscalls": (syscalls, ("syscalls",)),
    "page_faults": (page_faults, ("page_faults", "processes")),
    "fault_causes": (fault_causes, ("page_faults", "processes")),
    "summaries": (summaries, ("summaries",)),
    "writeback_reasons": (writeback_reasons, ("writeback",)),
    "flushed_pages": (flushed_pages, ("block",)),
    "writeback_intervals": (writeback_intervals, ("writeback",)),
    "block_latency": (block_latency, ("block",)),
    "phases": (phases, ("phases",)),
    "step_times": (step_times, ("phases",)),
    "counters": (counters, ("counters",)),
    "call_chains": (call_chains, ("call_graphs",)),
    "call_graphs": (call_graphs, ("call_graphs",)),
    "samples": (samples, ("samples",)),
    "loss": (loss, ("loss",)),
}
"""Every table of the report, with the tables of the trace that it needs."""


def all_tables(trace: Trace) -> dict[str, pd.DataFrame]:
    """Every table that this trace can give."""
    return {
        name: make(trace)
        for name, (make, needs) in TABLES.items()
        if all(need in trace.tables for need in needs)
    }


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame as plain rows: what is missing is None."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [
        {str(k): v.item() if hasattr(v, "item") else v for k, v in row.items()}
        for row in plain.to_dict(orient="records")
    ]
