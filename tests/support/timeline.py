"""Small traces over a second in ten bins, and what is in the bins."""

import numpy as np

from tests.support.traces import make_trace
from tracer.analysis.timeline.axis import Axis

MS, S = 10**6, 10**9
TENTHS = Axis(0, S - 1, S // 10)
"""A second in ten bins."""


def made(folder, **tables):
    return make_trace(folder / "t", tables)


def by_bin(frame, series):
    """The bins of a series that are not 0."""
    values = frame[series].to_numpy()
    return {int(n): float(values[n]) for n in np.flatnonzero(values)}


def requests(*told):
    """Events of requests: queued, issued, completed (ms), sector, pages."""
    events = []
    for queue, issue, complete, sector, pages in told:
        for name, ms in (("bio_queue", queue), ("issue", issue), ("complete", complete)):
            events.append(
                {"ts": int(ms * MS), "event": name, "dev": "254:0", "sector": sector, "tid": 50,
                 "nr_sector": 8 * pages, "rwbs": "W"}
            )  # fmt: skip
    return sorted(events, key=lambda row: row["ts"])
