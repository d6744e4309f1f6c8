"""manifest.json: what was recorded, where, how, and how it went.

Keys (all times ns of CLOCK_MONOTONIC unless said otherwise):

    schema        version of this layout, SCHEMA
    tool          name and versions of what wrote it
    state         recording, captured (raw only) or finalized (tables are there)
    complete      the recording ended as it should
    ended_by      what ended it: command, duration, signal, size, disk, target, killed
    recorder      pid and start time (clock ticks) of the recorder, boot_id of its machine
    host, kernel  machine, CPUs, memory, page size; release and version
    clock         name, start_ns, end_ns, realtime_offset_ns, jiffies [value, ns] or null
    command       argument list, or null
    targets       [{name, role, kind, pid, ...}]
    probes        names of the probes that were on; `missing` events of each that were not there
    backend       ftrace
    ftrace        header_page, header_event, formats {event: text}, streams [{file, stream, cpu}],
                  stats {stream: {kernel counter: value}}
    syscall_names {number: name}
    vm            sysctls that steer write-back
    mounts, disks what the devices in the tables are
    own_files     device and inode numbers of what the recorder itself wrote
    own_cost      cpu_s, max_rss_bytes, bytes_written of the recorder
    tables        {name: {rows, bytes}}
    loss          {events, windows}
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from probes.errors import BadTrace, PermissionMissing
from tracer.store.files import read_bounded, write_whole

SCHEMA = 1
FILE = "manifest.json"
_MAX_BYTES = 64 << 20

Manifest = dict[str, Any]

_TYPES: dict[str, type | tuple[type, ...]] = {
    "state": str,
    "complete": bool,
    "recorder": dict,
    "host": dict,
    "clock": dict,
    "targets": list,
    "probes": list,
    "backend": str,
    "ftrace": dict,
    "tables": dict,
    "loss": dict,
    "own_cost": dict,
    "own_files": dict,
    "vm": dict,
}


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a trace directory, whole or not at all."""
    write_whole(folder / FILE, json.dumps(manifest, indent=1).encode())


def read(folder: Path) -> Manifest:
    """The manifest of a trace directory, its types checked.

    Raises BadTrace where there is none, where it is damaged, or of a newer schema.
    """
    try:
        there = folder.exists()
    except PermissionError:
        raise PermissionMissing(
            f"{folder} may not be looked at by this user", "run as the trace's owner, or as root"
        ) from None
    if not there:
        raise BadTrace(f"there is no trace {folder}", "record one: tracer record -o NAME.trace ...")
    if not folder.is_dir():
        raise BadTrace(
            f"{folder} is a file, and a trace is a directory",
            "import it: tracer import FILE -o NAME.trace --format FORMAT",
        )
    path = folder / FILE
    try:
        manifest = json.loads(read_bounded(path, _MAX_BYTES), parse_constant=_refuse)
    except FileNotFoundError:
        raise BadTrace(
            f"{folder} is no trace: it has no {FILE}", "give the directory that `record -o` named"
        ) from None
    except PermissionError:
        raise PermissionMissing(
            f"{path} may not be read by this user", "run as the trace's owner, or as root"
        ) from None
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}", "record again") from None
    except (ValueError, RecursionError) as error:
        raise BadTrace(
            f"{path} is damaged: {error}", "restore it from a copy, or record again"
        ) from None
    return _checked(manifest, path)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _checked(manifest: Any, path: Path) -> Manifest:
    damaged = "restore it from a copy, or record again"
    if not isinstance(manifest, dict) or not isinstance(manifest.get("schema"), int):
        raise BadTrace(f"{path} is damaged: it names no schema", damaged)
    if manifest["schema"] > SCHEMA:
        raise BadTrace(
            f"{path.parent} has schema {manifest['schema']}; this tracer knows {SCHEMA}",
            "upgrade: pip install -U traintrace",
        )
    for key, kind in _TYPES.items():
        if not isinstance(manifest.get(key), kind):
            raise BadTrace(f"{path} is damaged: {key!r} is missing or of the wrong type", damaged)
    clock = manifest["clock"]
    if not isinstance(clock.get("start_ns"), int) or not isinstance(
        clock.get("end_ns"), int | None
    ):
        raise BadTrace(f"{path} is damaged: its clock has no start", damaged)
    return manifest


def duration_s(manifest: Manifest) -> float | None:
    """How long the recording lasted; None where its end is not known."""
    clock = manifest["clock"]
    if clock.get("end_ns") is None:
        return None
    seconds = (clock["end_ns"] - clock["start_ns"]) / 1e9
    return seconds if math.isfinite(seconds) else None
