"""The processes that load data beside the training: a DataLoader's workers."""

from __future__ import annotations

from tracer.store.trace import Trace

WORKERS = "(SELECT pid FROM phases GROUP BY pid HAVING bool_and(name = 'fetch') AND count(*) > 0)"
"""SQL for the processes that only mark fetches: a DataLoader's workers."""
AT_ONCE = (
    "SELECT max(n) FROM (SELECT sum(more) OVER (ORDER BY ts, more DESC) AS n FROM"
    ' (SELECT pid, unnest([min(start), max("end")]) AS ts, unnest([1, -1]) AS more'
    f" FROM phases WHERE pid IN {WORKERS} GROUP BY pid))"
)
"""SQL for the greatest number of workers that exist at once. Each epoch may have new workers."""

LESS_WORK = "do less work for each sample"
"""Words for the advice if more workers would find no CPU."""


def workers_at_once(trace: Trace) -> int:
    """Returns the greatest number of workers that exist at once. Needs the table phases."""
    return int(trace.rows(AT_ONCE)[0][0] or 0)


def more_workers(workers: int) -> str:
    """Returns the words for an advice to use more workers than `workers`, which may be none."""
    return "more workers" if workers else "workers (num_workers of the DataLoader)"
