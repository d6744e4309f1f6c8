"""What lies in lists beside the raw streams, and becomes rows: threads, mappings, members, marks.

Times are ns of CLOCK_MONOTONIC unless said otherwise.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from tracer.store.checked import STRICT, Count, Inode, Listed, Pid, Whole

ThreadFacts = tuple[Pid, Pid, Pid | None, str, str | None]
"""A thread at the start: (tid, pid, ppid or null: not known, comm, cgroup path)."""

MemberFacts = tuple[
    Count, Pid, Annotated[int, Field(ge=-1, lt=4096)], Annotated[int, Field(ge=-1, lt=1 << 15)],
    Count, bool,
]  # fmt: skip
"""A process found to belong to a target: (ns of the look, pid, number of the target in the
manifest or -1: none, but it makes processes for one; cgroup hierarchy that it was found in or
-1: by descent; ns of its start, to a clock tick; whether its events were not let in until
then). Pid 0: from then on the targets' events are let in."""

MarkFacts = tuple[str, Pid, Pid, Annotated[Listed[tuple[Pid, Pid]], Field(max_length=1 << 16)]]
"""Whose marks files of a container are: (how their names begin, its pid in the container, its
pid here or 0: not found, its threads as (there, here))."""

MappedFacts = tuple[str, tuple[Count, Count], Inode]
"""The file of a mapping: (path, device, inode)."""

MapFacts = tuple[Pid, Count, Listed[MappedFacts], Listed[tuple[Count, Count, Count, Count]]]
"""A process's mappings at the start: (pid, ns, files that no line before has named, mappings as
(start, end, offset in the file, its number among the files of all lines))."""

FileFacts = tuple[str, Inode | None, Inode, str, Whole | None, str]
"""A file that was written to, at the end: the columns of `probes.files.TABLE`."""

ExtentFacts = tuple[str, Inode, Count, Count, Count]
"""Where a piece of such a file lies: the columns of `probes.extents.EXTENT_MAP`."""


SampleFacts = tuple[
    Count, Annotated[int, Field(ge=-1, lt=4096)],
    Listed[tuple[str, str | None, Annotated[float, Field(allow_inf_nan=False)]]],
]  # fmt: skip
"""What a reader read: (ns, number of the target in the manifest or -1: the machine, values as
(series, instance, value))."""


@with_config(STRICT)
class SummaryFacts(TypedDict):
    """What was counted in one interval; see `probes.backends.ebpf.summary`."""

    start: Count
    end: Count
    sums: Listed[tuple[Literal[1, 2, 3, 4], Inode, Pid, Count, Count, Count, Count]]
    slots: Listed[tuple[Literal[1, 3], Inode, Annotated[int, Field(ge=0, lt=62)], Count]]
    uncounted: Count
