"""The devices of a trace in SQL: every join of tables that name devices differently goes by these.

`tracer.store.devices` says what names there are. Block events name a place of a disk, and files
and write-back have a name each for the volume that lies there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tracer.store.devices import EVERYWHERE, Devices, Place
from tracer.store.trace import Trace

TABLES = ("volume_places", "volume_names", "shared_disks", "own_inodes")
"""The tables that `make_volumes` makes."""


def make_partitions(trace: Trace) -> None:
    """Make the table `partitions`: dev and disk (MAJOR:MINOR) of each partition."""
    _make(trace, "partitions", ("dev", "disk"), list(Devices(trace.manifest).partitions.items()))


def make_volumes(trace: Trace) -> None:
    """Make the tables that `of_bios` and `of_files` join, `shared_disks` and `own_inodes`.

    `shared_disks`: the disks (disk) whose name in write-back events several mounted file systems
    share. `own_inodes`: fs, disk and ino of the recorder's own files.
    """
    devices = Devices(trace.manifest)
    pieces = [(p.place.disk, p.place.first, p.place.end, p.names) for p in devices.pieces]
    # Somebody else's trace may name partitions in block events, too.
    pieces += [(dev, 0, EVERYWHERE, devices.names(dev)) for dev in devices.partitions]
    _make(
        trace,
        "volume_places",
        ("dev", "first", "end", "fs", "bdi"),
        [(dev, first, end, names.fs, names.bdi) for dev, first, end, names in pieces],
    )
    names = [(name, each.fs, each.bdi) for name, each in devices.all_names().items()]
    _make(trace, "volume_names", ("name", "fs", "bdi"), names)
    _make(trace, "shared_disks", ("disk",), [(disk,) for disk in devices.shared()])
    _make_own(trace, devices)


def of_bios(rows: str) -> str:
    """SQL for `rows` (a table or query) of bios, which have dev and sector, with their volume.

    More columns: fs and disk, as files and as write-back call it; on_btrfs.
    """
    return f"""(
        SELECT r.*, coalesce(v.fs, r.dev) AS fs, coalesce(v.bdi, r.dev) AS disk,
            -- Write-back has the name of the disk for what lies on a partition.
            coalesce(v.fs = v.bdi, false) AS on_btrfs
        FROM {rows} r LEFT JOIN volume_places v
            ON r.dev = v.dev AND r.sector >= v.first AND r.sector < v."end"
    )"""


def of_files(rows: str) -> str:
    """SQL for `rows` (a table or query) of what file systems tell, which have dev and fsid.

    More columns: fs and disk, as files and as write-back call the volume.
    """
    return f"""(
        SELECT r.*, coalesce(v.fs, r.fsid, r.dev) AS fs, coalesce(v.bdi, r.fsid, r.dev) AS disk
        FROM {rows} r LEFT JOIN volume_names v ON coalesce(r.fsid, r.dev) = v.name
    )"""


def on_devices(trace: Trace, names: Sequence[str] | None, whole: bool = False) -> str:
    """SQL for whether a bio or request (dev, sector) is of these devices or file systems.

    Any name of a volume will do; None or empty: of all of them. `whole`: of any place on their
    disks, as a flush is. BadTrace where the trace does not tell where a partition begins.
    """
    if not names:
        return "true"
    devices = Devices(trace.manifest)
    places = [place for name in names for place in devices.places(name)]
    # A bio of somebody else's trace may name the partition.
    named = [_text(name) for name in names if name in devices.partitions]
    said = [f"dev IN ({', '.join(named)})"] if named else []
    said += [_at(place, whole) for place in places]
    # A btrfs may have no member that is known.
    return f"({' OR '.join(said)})" if said else "false"


def on_device(trace: Trace, name: str | None) -> str:
    """`on_devices` of one, or of all for None."""
    return on_devices(trace, None if name is None else [name])


def bdis_of(trace: Trace, name: str | None) -> str:
    """SQL for whether an event of write-back (bdi) is of this device or file system's disk."""
    if name is None:
        return "true"
    return f"bdi = {_text(Devices(trace.manifest).names(name).bdi)}"


def _at(place: Place, whole: bool) -> str:
    said = f"dev = {_text(place.disk)}"
    if whole or place == Place(place.disk):
        return said
    return f"({said} AND sector >= {place.first} AND sector < {place.end})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _make_own(trace: Trace, devices: Devices) -> None:
    # One each, though a device may have two numbers.
    rows = set()
    for dev, inodes in trace.manifest["own_files"].items():
        names = devices.names(dev)
        # Of a partition that lies nobody knows where, bios are of the disk.
        called = {names.fs} if devices.place(names.fs) else {names.fs, names.bdi}
        rows |= {(fs, names.bdi, ino) for fs in called for ino in inodes}
    _make(trace, "own_inodes", ("fs", "disk", "ino"), sorted(rows))


def make_device_inodes(trace: Trace, disks: Sequence[str]) -> None:
    """Make the table `device_inodes`: disk, ino and first_page (on the disk).

    The inodes of these disks, and of their partitions, that metadata is dirtied in.
    """
    found = Devices(trace.manifest).device_inodes(disks)
    rows = [(disk, ino, page) for (disk, ino), page in found.items()]
    _make(trace, "device_inodes", ("disk", "ino", "first_page"), rows)


_KINDS = {"first": pa.uint64(), "end": pa.uint64(), "ino": pa.uint64(), "first_page": pa.int64()}


def _make(
    trace: Trace, table: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> None:
    values = zip(*rows, strict=True) if rows else [()] * len(columns)
    arrays = [
        pa.array(column, _KINDS.get(name, pa.string()))
        for name, column in zip(columns, values, strict=True)
    ]
    trace.execute(f'DROP TABLE IF EXISTS "{table}"')
    trace.keep(table, pa.Table.from_arrays(arrays, names=list(columns)))
