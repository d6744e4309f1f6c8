"""Calls that wait for an NVIDIA GPU: uprobes on the library of CUDA's driver.

Programs reach the driver through this library. A thread that waits for a GPU spins in it, by
default, so that no event of the kernel shows it. If it sleeps instead
(cudaDeviceScheduleBlockingSync), a thread of the library wakes it.

A copy from or to memory that is not pinned waits, too, until the GPU has come so far.
"""

from __future__ import annotations

from tracer.probes.schema import CPU, EVENT, PID, TID, TS, Event, Feed, Probe, Scope, Table
from tracer.probes.uprobe_place import Place

LIBRARY = "libcuda.so.1"
PATH = rb"/libcuda\.so(\.[0-9]+)*$"
"""Regular expression for its paths."""
GROUP = "cuda"
END = "_end"
"""Follows the name of a function in the name of its return."""

_WITH_STREAMS = (
    ("cuStreamSynchronize", "_ptsz"),
    ("cuMemcpyDtoHAsync_v2", "_ptsz"),
    ("cuMemcpyHtoDAsync_v2", "_ptsz"),
    ("cuMemcpyDtoH_v2", "_ptds"),
    ("cuMemcpyHtoD_v2", "_ptds"),
)
"""Functions with a variant of their own for programs in which each thread has a default stream."""

FUNCTIONS = (
    *("cuCtxSynchronize", "cuCtxSynchronize_v2", "cuEventSynchronize"),
    *(name + variant for name, suffix in _WITH_STREAMS for variant in ("", suffix)),
)
"""Functions of the driver that return when the GPU has come so far. A driver may lack some."""

PLACES = {
    event: Place(name, exact=True, returns=returns, optional=True)
    for name in FUNCTIONS
    for event, returns in ((name, False), (name + END, True))
}
"""Places by the event's name."""

TABLE = Table(
    "gpu_calls",
    "One row per entry and per return of a function in which a thread waits for a GPU.",
    (TS, CPU, PID, TID, EVENT),
    example="SELECT event, count(*) FROM gpu_calls GROUP BY ALL ORDER BY 2 DESC",
    option="-e default",
)
ABSENT = f"{LIBRARY} of NVIDIA's driver was not found as the recording began"
"""The reason why a trace lacks the table, if the probe was asked for."""
MEND = "install NVIDIA's driver, or tell the dynamic linker where it is (LD_LIBRARY_PATH, ldconfig)"

PROBE = Probe(
    "gpu_calls",
    "when threads wait for an NVIDIA GPU, spinning or asleep",
    TABLE,
    tuple(Event(f"{GROUP}:{label}", label, feed=Feed.UPROBE) for label in PLACES),
    Scope.TARGET,
    rate="two events per synchronization or copy; each costs all programs of the GPU 3 to 12 us",
    optional=True,
)
