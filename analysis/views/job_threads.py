"""The threads of all jobs: one row per life of a thread number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.analysis.views.lives import Lives
from tracer.analysis.views.stretches import Ints
from tracer.analysis.views.threads import make_threads
from tracer.store.trace import Trace

_THREADS = """
CREATE OR REPLACE TEMP TABLE job_threads AS
SELECT * EXCLUDE (job), dense_rank() OVER (ORDER BY target NULLS FIRST) - 1 AS job
FROM threads WHERE job
"""


@dataclass(frozen=True)
class JobThreads(Lives):
    """The threads of all jobs: arrays, by their lanes."""

    job: Ints
    ended: Ints
    """Time in ns of the end of the thread or of the recording."""
    was_there: Ints
    """Lanes of threads that began before the recording."""


def make_job_threads(trace: Trace) -> None:
    """Makes the table `job_threads`: the rows of `threads` that are jobs', and job (its number)."""
    make_threads(trace)
    trace.execute(_THREADS)


def job_threads(trace: Trace, ended: int) -> JobThreads:
    """Returns the rows of the table `job_threads`; the recording ended at `ended` (ns)."""
    rows = trace.arrow(
        "SELECT tid::BIGINT AS tid, begun, until, job,"
        f" least(ended, until, {ended}) AS ended, was_there FROM job_threads ORDER BY tid, begun"
    )
    tid, begun, until, job, last, was_there = (rows[name].to_numpy() for name in rows.column_names)
    return JobThreads(tid, begun, until, job, last, np.flatnonzero(was_there))
