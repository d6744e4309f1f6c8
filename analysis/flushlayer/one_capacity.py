"""The model of Park & Bahn 2023, section 5, at one capacity.

The paper gives no capacity and no policy, so both are inputs here. It does not say whether pages
left in the layer at the end are written, so both improvements are given. The closed form is in
flat_latencies.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.flushlayer.devices import Device
from tracer.analysis.flushlayer.flat_latencies import improvement
from tracer.analysis.flushlayer.policies import Operations, find_policy
from tracer.analysis.flushlayer.policies import simulate as run
from tracer.analysis.flushlayer.policies.operations import BUFFERS
from tracer.analysis.flushlayer.trace.accesses import Accesses


@dataclass(frozen=True)
class Result:
    """The effect of the layer on a trace's write-backs."""

    requests: int
    """N: page write-backs."""
    unique_pages: int
    """U: distinct pages accessed."""
    capacity_pages: int
    disk_writes: int
    """D: pages that reach the disk before the end of the trace."""
    resident_pages: int
    """Pages left in the layer at the end; the final drain writes them."""
    improvement: float | None
    """I, the time saved, without the final drain; None without requests."""
    improvement_with_drain: float | None
    reads: int
    """Page reads; 0 if the accesses have none."""
    read_hits: int
    """Those of them that the layer serves."""


def simulate(
    accesses: Accesses,
    capacity_pages: int,
    medium: Device,
    disk: Device,
    policy: str = "lru",
    op: Operations | None = None,
) -> Result:
    """Runs the model for one capacity.

    `op`: the operation of each access (operations.py); without it, all are writes. Raises
    UsageError for an unknown policy.
    """
    counts = run(policy, accesses.page, accesses.unique, capacity_pages, op)
    n = counts.writes + counts.past

    def improved(disk_writes: int) -> float | None:
        if n == 0:
            return None
        return float(improvement(n, counts.writes, disk_writes, medium.write_ns, disk.write_ns))

    return Result(
        n,
        accesses.unique,
        capacity_pages,
        counts.disk_writes,
        counts.resident,
        improved(counts.disk_writes),
        improved(counts.disk_writes + counts.resident),
        counts.reads,
        counts.read_hits,
    )


def assumptions(
    medium: Device, disk: Device, policy: str = "lru", buffer: str = "write-only"
) -> list[str]:
    """Returns the assumptions behind the improvement, to be shown beside it."""
    return [
        f"a page of 4096 bytes is a request; {disk.name}: {disk.write_ns / 1e6:g} ms for every"
        f" write, {medium.name}: {medium.write_ns} ns for every write",
        "serial: times are summed; no overlap, queueing, merging or seeking",
        f"{buffer} buffer ({BUFFERS[buffer]}), {policy} ({find_policy(policy).in_buffer(buffer)});"
        " a page is destaged only to make room; the time of reads does not count",
        "improvement: pages left in the layer at the end are not written to the disk;"
        " improvement_with_drain: all of them are written",
    ]
