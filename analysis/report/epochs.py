"""Time and reads of each training epoch (Prashanthi et al. 2022, Figures 2, 4 and 5)."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.disks.volumes import bios_on_one_level
from tracer.analysis.views.phases.epoch_passes import epoch_passes
from tracer.analysis.views.phases.nesting import NEVER
from tracer.analysis.views.reading.reads import READS, reads
from tracer.analysis.views.threads import of_everybody
from tracer.analysis.views.waiting.steps import steps
from tracer.store.manifest import with_all_events
from tracer.store.trace import Trace

_MARKS = f"""
SELECT pid, epoch, start, coalesce("end", {NEVER}) AS "end" FROM phases
WHERE name = 'epoch' AND epoch IS NOT NULL
"""


def epochs(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns each epoch of the training: the mean over jobs that run at once.

    If a job's epochs begin at 0 again (another fold, another run), it is the mean over these, too.

    Columns: epoch (from 0), jobs, steps, epoch_s, stall_s, compute_s, overhead_s (includes
    checkpoints): sums over its minibatches; read_bytes (from `dev`, or from all devices, during the
    epoch, by any process; reads of devices below a stacked one do not count again),
    page_cache_bytes (of the machine, mean of the samples), residency_percent (of the named folders,
    mean), hit_percent and again_percent (of the pages of the files on `dev` that the targets used:
    those in the page cache; those that reclaim had taken out of it, so that they were read again).
    Null: not recorded. Of an epoch that began before the recording, or did not end in it, only the
    number is given, and the rest is null. Needs table phases.
    """
    view = steps(trace)
    present = set(trace.tables)
    for table in ("block", "samples"):
        trace.empty_if_missing(table)
    begin, until = with_all_events(trace.manifest)
    end = LATEST if until is None else until
    reading = "event = 'bio_queue' AND starts_with(rwbs, 'R')"
    frame = trace.sql(
        f"""
        WITH epoch AS (
            SELECT *, start < {begin} OR ended > {end} OR ended = {NEVER} AS partial
            FROM ({epoch_passes(_MARKS)})
        ), spent AS (
            SELECT e.pid, e.epoch, e.pass, count(*) AS steps, sum(fetch_stall_ns) / 1e9 AS stall_s,
                sum(compute_ns) / 1e9 AS compute_s,
                sum(overhead_ns + coalesce(checkpoint_ns, 0)) / 1e9 AS overhead_s
            FROM {view} s ASOF JOIN epoch e
                ON s.pid = e.pid AND s.epoch = e.epoch
                -- A fetch before the epoch belongs to its first step.
                AND greatest(s.start, s."end" - 1) >= e.start
            WHERE stage = 'train' AND total_ns IS NOT NULL AND NOT partial GROUP BY ALL
        ), read AS (
            SELECT ts, sum(nr_sector) OVER (ORDER BY ts RANGE UNBOUNDED PRECEDING) * 512 AS bytes
            FROM block WHERE {reading} AND {bios_on_one_level(trace, dev, reading)}
        ), sampled AS (
            SELECT pid, epoch, pass, avg(value) FILTER (s.name = 'page_cache') AS page_cache_bytes,
                avg(value) FILTER (s.name = 'residency') AS residency_percent
            FROM epoch JOIN samples s ON s.ts BETWEEN start AND ended AND s.target IS NULL
            WHERE NOT partial GROUP BY ALL
        )
        SELECT e.epoch, count(DISTINCT e.pid) AS jobs, avg(p.steps) AS steps,
            avg(e.ended - e.start) FILTER (NOT partial) / 1e9 AS epoch_s, avg(stall_s) AS stall_s,
            avg(compute_s) AS compute_s, avg(overhead_s) AS overhead_s,
            avg(coalesce(r2.bytes, 0) - coalesce(r1.bytes, 0)) FILTER (NOT partial) AS read_bytes,
            avg(page_cache_bytes) AS page_cache_bytes,
            avg(residency_percent) AS residency_percent
        FROM epoch e LEFT JOIN spent p USING (pid, epoch, pass)
        LEFT JOIN sampled USING (pid, epoch, pass)
        ASOF LEFT JOIN read r1 ON e.start > r1.ts ASOF LEFT JOIN read r2 ON e.ended >= r2.ts
        GROUP BY e.epoch ORDER BY e.epoch
        """
    )
    if "block" not in present:
        frame["read_bytes"] = None
    return frame.merge(_hits(trace, dev), "left", "epoch")


def _hits(trace: Trace, dev: str | None) -> pd.DataFrame:
    if not all(table in trace.tables for table in READS.needs):
        kinds = {"epoch": "int64", "hit_percent": "float64", "again_percent": "float64"}
        return pd.DataFrame(columns=list(kinds)).astype(kinds)
    return trace.sql(
        f"""
        SELECT epoch, 100 * sum(hit) / sum(accessed) AS hit_percent,
            100 * sum(refaulted) / sum(accessed) AS again_percent
        FROM {reads(trace)}
        WHERE (target IS NOT NULL OR {of_everybody(trace)}) AND epoch IS NOT NULL
            AND coalesce(dev = ?, true) AND NOT coalesce(partial, false)
        GROUP BY epoch HAVING sum(accessed) > 0
        """,
        dev,
    )
