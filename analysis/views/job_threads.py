"""The threads of all jobs: one row per life of a thread number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.analysis.views.stretches import Ints
from tracer.analysis.views.threads import make_threads
from tracer.probes.compiled import compiled
from tracer.store.trace import Trace

_THREADS = """
CREATE OR REPLACE TEMP TABLE job_threads AS
SELECT * EXCLUDE (job), dense_rank() OVER (ORDER BY target NULLS FIRST) - 1 AS job
FROM threads WHERE job
"""


@dataclass(frozen=True)
class JobThreads:
    """The threads of all jobs: arrays, by their lanes."""

    tid: Ints
    """Thread numbers, ascending. A number that several threads had is there several times."""
    begun: Ints
    """Time in ns from which the number is this thread's; ascends in each number."""
    until: Ints
    """Time in ns from which another thread has the number."""
    job: Ints
    ended: Ints
    """Time in ns of the end of the thread or of the recording."""
    was_there: Ints
    """Lanes of threads that began before the recording."""

    def of(self, tid: Ints, ts: Ints) -> Ints:
        """Returns the lanes of events by their threads and times (ns); -1: of no job."""
        lane = np.empty(len(tid), np.int64)
        _lanes(tid, ts, self.tid, self.begun, self.until, lane)
        return lane


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


@compiled
def _lanes(tid: Ints, ts: Ints, tids: Ints, begun: Ints, until: Ints, lane: Ints) -> None:
    for row in range(len(tid)):
        low, high = 0, len(tids)
        # The first lane after the moment.
        while low < high:
            middle = (low + high) // 2
            if tids[middle] < tid[row] or (tids[middle] == tid[row] and begun[middle] <= ts[row]):
                low = middle + 1
            else:
                high = middle
        at = low - 1
        lane[row] = at if at >= 0 and tids[at] == tid[row] and ts[row] < until[at] else -1
