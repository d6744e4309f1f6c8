"""The manifest of a recording: its first version, its end and its cost."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path

from tracer.probes.backends.backend import CLOCK
from tracer.probes.clocks import ahead_of_monotonic_ns
from tracer.probes.kernel import (
    boot_id,
    compat_syscall_names,
    jiffies,
    process_start_time,
    syscall_names,
)
from tracer.probes.proc import beginning
from tracer.session import environment, extent_maps, output
from tracer.session.capture import Capture, Stats
from tracer.session.failures import DISK, ERROR
from tracer.session.options import Options
from tracer.store import manifest as manifests
from tracer.store.finalize import EVENTS, RAW
from tracer.store.manifest import Manifest
from tracer.store.manifest_parts import ContainerFacts, Recorder
from tracer.targets import Target, containers_since


def first_manifest(
    options: Options, probes: list[str], targets: list[Target], capture: Capture, why: str
) -> Manifest:
    """Returns the manifest of a recording that is about to begin."""
    recorder: Recorder = {
        "pid": os.getpid(),
        "start_time": process_start_time(os.getpid()),
        "boot_id": boot_id(),
    }
    if capture.guardian is not None:
        recorder["guardian"] = capture.guardian, process_start_time(capture.guardian)
    manifest: Manifest = {
        "schema": manifests.SCHEMA,
        "tool": environment.tool(),
        "state": "recording",
        "complete": False,
        "ended_by": None,
        "recorder": recorder,
        "host": environment.host(),
        "kernel": environment.kernel(),
        "clock": {
            "name": CLOCK,
            "start_ns": time.monotonic_ns(),
            "end_ns": None,
            "realtime_offset_ns": ahead_of_monotonic_ns(time.CLOCK_REALTIME),
            "jiffies": jiffies(),
        },
        "duration_s": None,
        "command": beginning(options.command) or None,
        "cuda_sync": options.cuda_sync,
        "linger_s": options.linger_s,
        "targets": [target.describe() for target in targets],
        "probes": probes,
        "backend": capture.name,
        "backend_why": why,
        "capture": capture.describe(),
        "compat_syscall_names": {str(nr): name for nr, name in compat_syscall_names().items()},
        "syscall_names": {str(nr): name for nr, name in syscall_names().items()},
        "vm": environment.vm(),
        "mounts": environment.mounts(),
        "file_systems": extent_maps.file_systems(),
        "disks": environment.disks(),
        "btrfs": environment.btrfs(),
        "own_files": {},
        "own_cost": {},
        "tables": {},
        "loss": {},
    }
    add_containers(manifest)
    return manifest


def add_devices(manifest: Manifest) -> None:
    """Adds devices and mounts that have appeared since the manifest was made."""
    mounts, disks = manifest["mounts"], manifest["disks"]
    mounted, attached = {mount["dev"] for mount in mounts}, {disk.get("dev") for disk in disks}
    mounts += [mount for mount in environment.mounts() if mount["dev"] not in mounted]
    disks += [disk for disk in environment.disks() if disk.get("dev") not in attached]
    manifest["btrfs"] += [fs for fs in environment.btrfs() if fs not in manifest["btrfs"]]
    known = {fs["dev"] for fs in manifest["file_systems"]}
    manifest["file_systems"] += extent_maps.file_systems(known)


def add_containers(manifest: Manifest, met: Mapping[str, ContainerFacts] | None = None) -> int:
    """Adds the containers that have run so far to the manifest, if an engine answers.

    `met`: containers that were met during the recording, which no engine may remember. Returns the
    number of containers that were left out, because there are too many.
    """
    before = {container["id"]: container for container in manifest.get("containers", [])}
    begun = manifest["clock"]["start_ns"] + manifest["clock"].get("realtime_offset_ns", 0)
    found = containers_since(begun / 1e9, {**(met or {}), **before} or None)
    if found is None:
        return 0
    if "containers" in manifest:
        for identity in found.keys() - before.keys():
            found[identity]["arrived"] = True
    every = list(found.values())
    if len(every) > manifests.MOST_CONTAINERS:
        every.sort(key=lambda facts: not facts["pid"])  # first those whose processes are recorded
    manifest["containers"] = every[: manifests.MOST_CONTAINERS]
    return len(every) - len(manifest["containers"])


def note_end(folder: Path, manifest: Manifest, stats: Stats, ended_by: str, end_ns: int) -> None:
    """Adds the end of the capture to the manifest."""
    manifest["clock"]["end_ns"] = end_ns
    manifest["state"] = "captured"
    manifest["complete"] = ended_by not in (DISK, ERROR, "killed")
    manifest["ended_by"] = ended_by
    manifest["duration_s"] = manifests.duration_s(manifest)
    manifest["capture"]["stats"] = stats
    manifest["own_files"] = output.inodes(folder)


def cpu_s() -> float:
    """Returns the CPU time in s that this process has used so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round(usage.ru_utime + usage.ru_stime, 3)


def max_rss_bytes() -> int:
    """Returns the peak memory in bytes of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def add_cost(folder: Path, manifest: Manifest, others_s: float) -> Manifest:
    """Adds the recorder's own cost to the manifest and writes it. Raises OSError.

    `others_s` is the CPU time in s of the recorder's other processes, except perf.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    written = {
        part: sum(path.stat().st_size for path in (folder / part).rglob("*") if path.is_file())
        for part in (RAW, EVENTS)
    }
    perf_s = manifest.get("perf", {}).get("cpu_s", 0.0)
    manifest["own_cost"] = {
        **manifest["own_cost"],
        "cpu_s": round(usage.ru_utime + usage.ru_stime + perf_s + others_s, 3),
        "max_rss_bytes": max_rss_bytes(),
        "bytes_written": sum(written.values()),
        "raw_bytes": written[RAW],
    }
    manifests.write(folder, manifest)
    return manifest
