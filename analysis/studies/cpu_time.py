"""CPU time of jobs and of the daemon, used instead of cycles without hardware counters."""

from __future__ import annotations

from typing import Any

from tracer.store.trace import Trace

TASK_CLOCK = "task-clock"
MEASURES = ("cpu_s", "daemon_cpu_share")
"""The names of the measures of `cpu_measures`."""


def cpu_measures(trace: Trace) -> dict[str, Any]:
    """Returns the CPU time of a job by perf's task clock, and the daemon's as a share of the jobs'.

    cpu_s: the mean over the jobs. daemon_cpu_share: null without a daemon or without its samples.
    """
    trace.require("counters")
    used = trace.sql(
        "SELECT target, sum(value) / 1e9 AS s FROM counters"
        f" WHERE event = '{TASK_CLOCK}' AND value IS NOT NULL GROUP BY target"
    ).set_index("target")["s"]
    names = [one["name"] for one in trace.manifest["targets"] if one["role"] != "daemon"]
    jobs = used[used.index.isin(names)]
    total = float(jobs.sum())
    daemon = daemon_cpu_s(trace)
    return {
        "cpu_s": total / len(jobs) if len(jobs) else None,
        "daemon_cpu_share": None if daemon is None or not total else daemon / total,
    }


def daemon_cpu_s(trace: Trace) -> float | None:
    """Returns the CPU time that the daemon used during the recording, in s; None: not sampled.

    It is the time of dockerd, containerd and the shims, from the samples. perf counts a daemon's
    clock with the containers that it starts, which are a hundred times as much.
    """
    daemons = [one["name"] for one in trace.manifest["targets"] if one["kind"] == "daemon"]
    if not daemons:
        return None
    trace.empty_if_missing("samples")
    found = trace.sql(
        """
        SELECT sum(s) AS s FROM (
            SELECT list_sum(list(grown ORDER BY ts)) AS s FROM (
                SELECT target, ts, value - lag(value) OVER w AS grown
                FROM samples WHERE name = 'cpu_time' AND list_contains(?::VARCHAR[], target)
                WINDOW w AS (PARTITION BY target ORDER BY ts)
            ) WHERE grown >= 0 GROUP BY target
        )
        """,
        daemons,
    )["s"].iloc[0]
    return None if found is None or found != found else float(found)
