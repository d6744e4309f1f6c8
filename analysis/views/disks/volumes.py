"""The devices of a trace in SQL, for joins of tables that name devices differently.

`tracer.store.devices` knows all names. Block events name a place on a disk. File events and
write-back events each have their own name for the volume at that place.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tracer.probes.errors import BadTrace
from tracer.store.devices import EVERYWHERE, Devices, Place
from tracer.store.trace import Trace

TABLES = ("volume_places", "volume_names", "shared_disks", "own_inodes")
"""The tables that `make_volumes` makes."""


def make_partitions(trace: Trace) -> None:
    """Makes the table `partitions`: dev and disk (MAJOR:MINOR) of each partition."""
    _make(trace, "partitions", ("dev", "disk"), list(Devices(trace.manifest).partitions.items()))


def make_stacked(trace: Trace) -> bool:
    """Makes the tables of stacked devices, unless there is none; returns whether there is one.

    `stacked`: each stacked device (dev), a device below it (below) and that one's whole disk
    (disk). `stacked_loops`: each loop device (dev) on a block device, and the place of its sectors
    (disk, first, "end"). `stacked_caches`: each device of bcache (dev), a place below (disk, first,
    "end"), and whether the data lies in order there, as on the device behind the cache (in_order).
    """
    devices = Devices(trace.manifest)
    rows = list(devices.stacked())
    if not rows:
        return False
    _make(trace, "stacked", ("dev", "below", "disk"), rows)
    loops = [(dev, p.disk, p.first, p.end) for dev, p in devices.loops()]
    _make(trace, "stacked_loops", ("dev", "disk", "first", "end"), loops)
    caches = [(dev, p.disk, p.first, p.end, in_order) for dev, p, in_order in devices.cached()]
    _make(trace, "stacked_caches", ("dev", "disk", "first", "end", "in_order"), caches)
    return True


def make_volumes(trace: Trace) -> None:
    """Makes the tables `volume_places`, `volume_names`, `shared_disks` and `own_inodes`.

    `volume_places` and `volume_names` are joined by `of_bios` and `of_files`. `shared_disks`: the
    disks (disk) whose name in write-back events several mounted file systems share. `own_inodes`:
    fs, disk and ino of the recorder's own files.
    """
    devices = Devices(trace.manifest)
    pieces = [(p.place.disk, p.place.first, p.place.end, p.names) for p in devices.pieces]
    # Block events in imported traces may name partitions.
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
    """Returns SQL that adds the volume to `rows`, a table or query of bios with dev and sector.

    It adds the columns fs (the volume's name in file events), disk (its name in write-back events)
    and on_btrfs.
    """
    return f"""(
        SELECT r.*, coalesce(v.fs, r.dev) AS fs, coalesce(v.bdi, r.dev) AS disk,
            -- For a file system on a partition, write-back events name the whole disk.
            coalesce(v.fs = v.bdi, false) AS on_btrfs
        FROM {rows} r LEFT JOIN volume_places v
            ON r.dev = v.dev AND r.sector >= v.first AND r.sector < v."end"
    )"""


def of_files(rows: str) -> str:
    """Returns SQL that adds the volume to `rows`, file events (table or query) with dev and fsid.

    It adds the columns fs (the volume's name in file events) and disk (its name in write-back
    events).
    """
    return f"""(
        SELECT r.*, coalesce(v.fs, r.fsid, r.dev) AS fs, coalesce(v.bdi, r.fsid, r.dev) AS disk
        FROM {rows} r LEFT JOIN volume_names v ON coalesce(r.fsid, r.dev) = v.name
    )"""


def on_devices(trace: Trace, names: Sequence[str] | None, whole: bool = False) -> str:
    """Returns an SQL condition: a bio or request (dev, sector) is on these devices or file systems.

    `names` may hold any name of a volume. None or empty: all devices. With `whole`, any place on
    the volumes' disks counts, as is right for a flush of a disk's cache. Raises BadTrace if the
    trace does not say where a partition begins.
    """
    if not names:
        return "true"
    devices = Devices(trace.manifest)
    places = [place for name in names for place in devices.places(name)]
    # A bio in an imported trace may name the partition.
    named = [_text(name) for name in names if name in devices.partitions]
    said = [f"dev IN ({', '.join(named)})"] if named else []
    said += [_at(place, whole) for place in places]
    # The members of a btrfs may all be unknown.
    return f"({' OR '.join(said)})" if said else "false"


def below_others(trace: Trace, disks: Sequence[str], inodes: bool = True, deep: bool = True) -> str:
    """Returns an SQL condition: a bio has the data of a stacked device again.

    The bio has the columns dev, sector, ino and rwbs.

    `disks` are those with writes. Their data is carried again by all that lies below: the devices
    of device mapper and md, and the file of a loop device, without the metadata written for it.
    Without `inodes`, the bios have no ino, and such files cannot be told. Without `deep`, only the
    devices count that the disks lie on themselves.
    """
    said = []
    for carrying in Devices(trace.manifest).carrying(disks, deep):
        try:
            place = on_devices(trace, [carrying.name])
        except BadTrace:
            continue  # a partition whose place is not known
        if carrying.ino is None:
            said.append(place)
        elif inodes:
            data = "NOT contains(coalesce(rwbs, ''), 'M')"
            said.append(f"({place} AND ino IS NOT NULL AND ino = {carrying.ino} AND {data})")
    return f"({' OR '.join(said)})" if said else "false"


def on_one_level(trace: Trace, name: str | None) -> str:
    """Returns an SQL condition on rows of `flushes`: they are on a device, or count once.

    With `name`, it is `on_device`. Without, what a stacked device hands on is left out.
    """
    return "NOT below" if name is None else on_device(trace, name)


def requests_on_one_level(trace: Trace, name: str | None) -> str:
    """Returns an SQL condition on rows of `requests`: they are on a device, or count once.

    With `name`, it is `on_device`. Without, the requests below a device that has requests itself
    (multipath, a loop device on a block device) are left out. Most stacked devices have none: they
    hand bios on. Needs the view requests.
    """
    if name is not None:
        return on_device(trace, name)
    return _not_below(trace, "requests", deep=False)


def bios_on_one_level(trace: Trace, name: str | None, kind: str) -> str:
    """Returns an SQL condition on bios in `block`: they are on a device, or count once.

    `kind` is an SQL condition: which bios are asked for. With `name`, the result is `on_device`.
    Without, bios below a stacked device that has such bios itself are left out.
    """
    return _not_below(trace, f"block WHERE {kind}") if name is None else on_device(trace, name)


def _not_below(trace: Trace, rows: str, deep: bool = True) -> str:
    devs = [dev for (dev,) in trace.rows(f"SELECT DISTINCT dev FROM {rows}") if dev is not None]
    below = below_others(trace, devs, inodes=False, deep=deep)
    return "true" if below == "false" else f"NOT coalesce({below}, false)"


def on_device(trace: Trace, name: str | None) -> str:
    """Returns the condition of `on_devices` for one device; None: all devices."""
    return on_devices(trace, None if name is None else [name])


def bdis_of(trace: Trace, name: str | None) -> str:
    """Returns an SQL condition: a write-back event (bdi) names the disk of this volume."""
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
    # A set, because a device may have two numbers.
    rows = set()
    for dev, inodes in trace.manifest["own_files"].items():
        names = devices.names(dev)
        # If the place of a partition is unknown, its bios name the disk.
        called = {names.fs} if devices.place(names.fs) else {names.fs, names.bdi}
        rows |= {(fs, names.bdi, ino) for fs in called for ino in inodes}
    _make(trace, "own_inodes", ("fs", "disk", "ino"), sorted(rows))


def make_device_inodes(trace: Trace, disks: Sequence[str]) -> None:
    """Makes the table `device_inodes`: disk, ino and first_page (on the disk).

    Its rows are the inodes of these disks and of their partitions, in which metadata is dirtied.
    """
    found = Devices(trace.manifest).device_inodes(disks)
    rows = [(disk, ino, page) for (disk, ino), page in found.items()]
    _make(trace, "device_inodes", ("disk", "ino", "first_page"), rows)


_KINDS = {
    **dict.fromkeys(("first", "end", "ino"), pa.uint64()),
    "first_page": pa.int64(),
    "in_order": pa.bool_(),
}


def _make(
    trace: Trace, table: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> None:
    values = zip(*rows, strict=True) if rows else [()] * len(columns)
    arrays = [
        pa.array(column, _KINDS.get(name, pa.string()))
        for name, column in zip(columns, values, strict=True)
    ]
    trace.keep(table, pa.Table.from_arrays(arrays, names=list(columns)))
