"""All probes and tables, by name."""

from __future__ import annotations

from tracer.probes import (
    call_graphs,
    counters,
    descriptors,
    files,
    phases,
    python_stacks,
    samples,
    summaries,
)
from tracer.probes.events import (
    block,
    buffers,
    dirty,
    extents,
    file_writes,
    gpu_calls,
    inode_writeback,
    journal,
    opens,
    page_cache,
    page_faults,
    processes,
    reclaim,
    sched,
    syscalls,
    torch_calls,
    writeback,
)
from tracer.probes.schema import Probe, Table

PROBES: dict[str, Probe] = {
    module.PROBE.name: module.PROBE
    for module in (
        syscalls,
        page_faults,
        writeback,
        dirty,
        inode_writeback,
        file_writes,
        extents,
        block,
        buffers,
        journal,
        page_cache,
        opens,
        reclaim,
        sched,
        torch_calls,
        gpu_calls,
        processes,
    )
}
"""Every probe, in the order in which they are shown."""

TABLES: dict[str, Table] = {
    **{probe.table.name: probe.table for probe in PROBES.values()},
    phases.TABLE.name: phases.TABLE,
    summaries.SUMS.name: summaries.SUMS,
    summaries.HISTOGRAMS.name: summaries.HISTOGRAMS,
    counters.TABLE.name: counters.TABLE,
    call_graphs.TABLE.name: call_graphs.TABLE,
    files.TABLE.name: files.TABLE,
    descriptors.TABLE.name: descriptors.TABLE,
    extents.EXTENT_MAP.name: extents.EXTENT_MAP,
    samples.TABLE.name: samples.TABLE,
    python_stacks.TABLE.name: python_stacks.TABLE,
}
"""Every table that a recording can hold."""

SETS: dict[str, tuple[str, ...]] = {
    "default": tuple(name for name, probe in PROBES.items() if probe.by_default),
    "all": tuple(PROBES),
}
"""Names of several probes."""

ALWAYS = ("processes",)
"""Probes that are always recorded, because the rows of the other probes refer to processes."""
