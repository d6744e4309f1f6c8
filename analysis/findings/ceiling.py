"""An upper bound on the training time that a flush layer or a faster disk can save.

A write-back that nobody waits for costs a job nothing, however slow the disk is. The time that can
be saved therefore lies within the times in which a thread of the job may have waited for a disk's
writes. The view `write_waits` (`tracer.analysis.views.disks.write_waits`) has these times. It
documents the waits that are included, and the waits that no event shows. The share is

    sum of the waits of any kind of the stretch's job that lie in a stretch / sum of all lengths

A stretch is a phase `train` (else `inference`, else the recording). If several threads of a job
wait at once, their time counts once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.findings.window import Scope, Window, lossy, window
from tracer.analysis.views.disks.wait_times import ANY, KINDS
from tracer.analysis.views.disks.write_waits import WRITE_WAITS
from tracer.analysis.views.threads import make_threads, owns
from tracer.store.trace import Trace

NO_EVENT = (
    "waits that other programs or a shortage of memory cause",
    "writes within a disk's own cache",
    "what the kernel does after a call returned (a file's last close)",
)
"""Waits that the ceiling never includes."""
_FEW = 64
"""Most stretches that are each compared with every wait. Beyond it, an ASOF join is used."""
_TABLES = {
    "block": "other calls and page faults while a disk wrote (no table block)",
    "dirty": "throttling of threads that dirty pages through a mapping (no table dirty)",
    "page_faults": "page faults (no table page_faults)",
}
"""Waits that the ceiling leaves out if a table is missing."""


@dataclass(frozen=True)
class Ceiling:
    """The time in which a job may have waited for writes. No flush layer can save more."""

    what: str
    """Name of the time considered: the training, the inference, or the recording."""
    length_s: float
    """Length of that time in s. If several jobs train at once, the sum of their lengths."""
    by_kind: dict[str, float]
    """Time in s in which some thread of the job may have waited, for each of KINDS."""
    total_s: float
    """Time in s in which some thread may have waited in any of these ways."""
    percent: float
    """Share of the time considered, 0 to 100: the first cell of the result of `query`."""
    query: str
    """SQL over the view write_waits, as `tracer query` runs it."""
    left_out: tuple[str, ...]
    """Waits that are not included."""
    lossy: bool
    """True if events were lost in this time. The time of the loss counts as waited for."""

    @property
    def share(self) -> float:
        """Share of the time considered, 0 to 1."""
        return self.percent / 100


def ceiling(trace: Trace) -> Ceiling | None:
    """Returns the ceiling for all jobs of a trace together.

    Returns None if the recording has no length or has no threads of a job. Needs the tables
    processes and syscalls. Without block, dirty or page_faults, `left_out` names the missing waits.
    """
    over = window(trace)
    if over is None:
        return None
    WRITE_WAITS.make(trace)
    make_threads(trace)
    jobs = "SELECT DISTINCT tid FROM threads WHERE job"
    threads, quiet = trace.rows(
        f"SELECT count(*), count(*) FILTER (WHERE tid NOT IN (SELECT DISTINCT tid FROM syscalls"
        f" WHERE tid IS NOT NULL)) FROM ({jobs})"
    )[0]
    if not threads:
        return None
    stretches = trace.rows(f"SELECT count(*) FROM ({_stretches(over)})")[0][0]
    query = _query(over, stretches <= _FEW)
    row = trace.sql(query).iloc[0]
    left_out = [said for table, said in _TABLES.items() if table not in trace.tables]
    if quiet:
        left_out.append(f"threads without any system call ({quiet})")
    return Ceiling(
        over.what,
        float(row["length_s"]),
        {kind: float(row[f"{kind}_s"]) for kind in KINDS},
        float(row[f"{ANY}_s"]),
        float(row["value"]),
        query,
        (*left_out, *NO_EVENT),
        lossy(trace, over, (Scope.TARGET, Scope.MACHINE)),
    )


def _query(over: Window, few: bool) -> str:
    """Returns SQL for one row: value (%), length_s, and KIND_s of each kind and of any."""
    if few:
        inside = (
            f"WITH stretches AS ({_stretches(over)}), inside AS (SELECT kind,"
            " least(ts + dur_ns, ended) - greatest(ts, begun) AS ns"
            " FROM write_waits w JOIN stretches s"
            " ON coalesce(w.target, '') = coalesce(s.target, '')"
            " AND ts < ended AND ts + dur_ns > begun)"
        )
        return f"{inside} {_sums(over)} FROM inside"
    return (
        "WITH waits AS (SELECT coalesce(target, '') AS target, kind, ts, dur_ns,"
        " sum(dur_ns) OVER (PARTITION BY target, kind ORDER BY ts) - dur_ns AS before"
        f" FROM write_waits), stretches AS ({_stretches(over)}),"
        f" edges AS (SELECT coalesce(target, '') AS target, kind, unnest([begun, ended]) AS edge,"
        f" unnest([-1, 1]) AS sign FROM stretches, (SELECT unnest({[ANY, *KINDS]}) AS kind)),"
        " inside AS (SELECT e.kind, sign * coalesce(before + least(dur_ns, edge - ts), 0) AS ns"
        " FROM edges e ASOF LEFT JOIN waits w"
        " ON e.target = w.target AND e.kind = w.kind AND edge >= w.ts)"
        f" {_sums(over)} FROM inside"
    )


def _sums(over: Window) -> str:
    sums = ", ".join(
        f"coalesce(sum(ns) FILTER (WHERE kind = '{kind}'), 0) / 1e9 AS {kind}_s"
        for kind in (ANY, *KINDS)
    )
    return (
        f"SELECT 100 * least(1, coalesce(sum(ns) FILTER (WHERE kind = '{ANY}'), 0) / {over.ns})"
        f" AS value, {over.ns} / 1e9 AS length_s, {sums}"
    )


def _stretches(over: Window) -> str:
    """Returns SQL for the stretches: target (null: all targets), begun, ended (ns)."""
    if not over.stage:
        return f"SELECT NULL AS target, {over.start} AS begun, {over.end} AS ended"
    last = f"coalesce(p.until, {over.end})"
    return (
        f"SELECT target, greatest(start, {over.start}) AS begun,"
        f" least({last}, {over.end}) AS ended"
        " FROM (SELECT *, coalesce(tid, pid) AS thread FROM phase_times) p"
        f" LEFT JOIN (SELECT * FROM threads WHERE job) t ON {owns('t', 'p', 'thread', 'start')}"
        f" WHERE name = '{over.stage}' AND start < {over.end} AND {last} > {over.start}"
        f" AND {last} > start"
    )
