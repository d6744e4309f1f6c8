"""Events of block requests, and the rows that the view makes of them."""

from tests.support.traces import make_trace
from tracer.analysis.views.disks.requests import requests


def block(ts, event, sector, nr_sector=8, rwbs="W", dev="254:0", **more):
    """A row of the table `block`."""
    return {
        "ts": ts,
        "tid": 1,
        "pid": 1,
        "event": event,
        "dev": dev,
        "sector": sector,
        "nr_sector": nr_sector,
        "rwbs": rwbs,
        **more,
    }


def rows(tmp_path, *events):
    """The requests that the view makes of these events, by time of issue."""
    with make_trace(tmp_path / "t", {"block": list(events)}) as trace:
        requests(trace)
        return trace.connection.execute(
            "SELECT sector, operation, queue_ns, insert_ns, issue_ns, complete_ns, "
            "queue_latency_ns, service_latency_ns FROM requests ORDER BY issue_ns"
        ).fetchall()
