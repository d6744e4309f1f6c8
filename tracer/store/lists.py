"""Types of the lists beside the raw streams that become rows: threads, mappings, members, marks.

Times are ns of CLOCK_MONOTONIC unless stated otherwise.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from tracer.store.checked import STRICT, Count, Inode, Listed, Pid, Whole

ThreadFacts = tuple[Pid, Pid, Pid | None, str, str | None]
"""A thread at the start: (tid, pid, ppid or null if unknown, comm, cgroup path)."""

MemberFacts = tuple[
    Count, Pid, Annotated[int, Field(ge=-1, lt=4096)], Annotated[int, Field(ge=-1, lt=1 << 15)],
    Count, bool,
]  # fmt: skip
"""A process of a target: (ns of the look; pid; number of the target in the manifest, or -1 if the
process only makes processes for a target; number of the cgroup hierarchy that it was found in, or
-1 for descent; ns of its start, to a clock tick; true if its events were not recorded before the
look). Pid 0 marks the time at which the recording of the targets' events begins."""

CpuFacts = tuple[Annotated[int, Field(ge=0, lt=1 << 15)], Count]
"""A CPU that came online during the recording: (its number, the last ns at which it was not)."""

MOST_THREADS = 1 << 16
"""Most threads of one process in `MarkFacts`."""

MarkFacts = tuple[str, Pid, Pid, Annotated[Listed[tuple[Pid, Pid]], Field(max_length=MOST_THREADS)]]
"""The process behind a container's marks files: (beginning of the files' names; its pid in the
container; its pid on this machine, or 0 if not found; its threads as (there, here))."""

MappedFacts = tuple[str, tuple[Count, Count], Inode]
"""The file of a mapping: (path, device, inode)."""

MapFacts = tuple[Pid, Count, Listed[MappedFacts], Listed[tuple[Count, Count, Count, Count]]]
"""A process's mappings at the start: (pid, ns, files not named in an earlier line, mappings as
(start, end, offset in the file, number of the file among the files of all lines))."""

FileFacts = tuple[str, Inode | None, Inode, str, Whole | None, Count, str]
"""A used file at the recording's end: the columns of `tracer.probes.files.TABLE`."""

DescriptorFacts = tuple[Count, Count, Pid, Pid, Count | None, Count, Count, str]
"""A file that was open when a process began to be recorded: the columns of
`tracer.probes.descriptors.TABLE`."""

ExtentFacts = tuple[str, Inode, Count, Count, Count]
"""An extent of such a file: the columns of `tracer.probes.events.extents.EXTENT_MAP`."""


SampleFacts = tuple[
    Count, Annotated[int, Field(ge=-1, lt=4096)],
    Listed[tuple[str, str | None, Annotated[float, Field(allow_inf_nan=False)]]],
]  # fmt: skip
"""A sample: (ns, number of the target in the manifest or -1 for the machine, values as
(series, instance, value))."""


LookFacts = tuple[Count, Count, Pid, Pid, Count, str | None]
"""A look at a Python thread: (ns of its begin, ns of its end, pid, tid, number of the stack, the
stack as in `tracer.probes.python_stacks` or null if an earlier line has it)."""


@with_config(STRICT)
class SummaryFacts(TypedDict):
    """The counts of one interval; see `tracer.probes.backends.ebpf.summary`."""

    start: Count
    end: Count
    sums: Listed[tuple[Literal[1, 2, 3, 4], Inode, Pid, Count, Count, Count, Count]]
    slots: Listed[tuple[Literal[1, 3], Inode, Annotated[int, Field(ge=0, lt=62)], Count]]
    uncounted: Count
