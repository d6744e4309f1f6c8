"""Partitions and their disks: bios name the one, requests and write-back the other."""

from __future__ import annotations

from tracer.store.trace import Trace


def make_partitions(trace: Trace) -> None:
    """Make the table `partitions`: dev and disk (MAJOR:MINOR) of each partition."""
    connection = trace.connection
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE partitions (dev VARCHAR PRIMARY KEY, disk VARCHAR)"
    )
    found = {
        disk["dev"]: disk["partition_of"]
        for disk in trace.manifest.get("disks", [])
        if "dev" in disk and "partition_of" in disk
    }
    for pair in found.items():
        connection.execute("INSERT INTO partitions VALUES (?, ?)", pair)
