"""What kernel events call one and the same volume: partition or disk, device or btrfs."""

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


def make_volumes(trace: Trace) -> None:
    """Make the tables `partitions`, `btrfs_names` and `shared_disks`.

    `btrfs_names` gives every name of a btrfs (its UUID, the numbers of its devices, and the number
    that has no device) the one that write-back events have for it: its bdi's. `shared_disks` are
    disks with more than one mounted file system: write-back events name the disk alone.
    """
    make_partitions(trace)
    connection = trace.connection
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE btrfs_names (name VARCHAR PRIMARY KEY, bdi VARCHAR)"
    )
    names = {
        name: found["bdi"]
        for found in trace.manifest.get("btrfs", [])
        for name in (found["fsid"], found["dev"], *found["devices"])
        if name
    }
    for pair in names.items():
        connection.execute("INSERT INTO btrfs_names VALUES (?, ?)", pair)
    connection.execute("CREATE OR REPLACE TEMP TABLE mounted (dev VARCHAR PRIMARY KEY)")
    for dev in {mount["dev"] for mount in trace.manifest.get("mounts", [])}:
        connection.execute("INSERT INTO mounted VALUES (?)", [dev])
    connection.execute(
        """
        CREATE OR REPLACE TEMP TABLE shared_disks AS
        SELECT coalesce(disk, dev) AS disk FROM mounted LEFT JOIN partitions USING (dev)
        GROUP BY 1 HAVING count(*) > 1
        """
    )
