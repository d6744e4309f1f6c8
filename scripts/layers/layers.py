"""Real layers in a guest: device mapper's writecache and cache, in front of a slow disk.

Each runs the same load on a fresh file system, after the slow disk alone has. Needs only Python's
standard library.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.kernels.recording import PLACE, record
from scripts.layers import loads
from scripts.layers.asked import asked
from scripts.layers.stacks import built, found, mapped, number_of, sectors

SLOW, FAST, META = "slow", "fast", "meta"
"""Serial numbers of the slow disk, and of fast ones for a layer and its metadata."""
_PMEM = Path("/dev/pmem0")
_SETTLED_S = 3.0
_PERIODIC = Path("/proc/sys/vm/dirty_writeback_centisecs")
_ASKED = 60


def _writecache_ssd(disks: dict[str, str]) -> str:
    length = sectors(disks[SLOW])
    line = f"0 {length} writecache s {disks[SLOW]} {disks[FAST]} 4096 0"
    return mapped("writecache-ssd", line)


def _writecache_pmem(disks: dict[str, str]) -> str:
    if not _PMEM.exists():
        raise RuntimeError("the guest has no /dev/pmem0")
    length = sectors(disks[SLOW])
    line = f"0 {length} writecache p {disks[SLOW]} {_PMEM} 4096 0"
    return mapped("writecache-pmem", line)


def _cache(disks: dict[str, str]) -> str:
    length = sectors(disks[SLOW])
    line = f"0 {length} cache {disks[META]} {disks[FAST]} {disks[SLOW]} 64 1 writeback smq 0"
    return mapped("cache", line)


LAYERS: dict[str, Callable[[dict[str, str]], str]] = {
    "writecache-ssd": _writecache_ssd,
    "writecache-pmem": _writecache_pmem,
    "cache": _cache,
}


def measured(program: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the facts of the slow disk alone, then of each layer before it, by name."""
    # Periodic write-back goes by the clock, however long the load takes.
    _PERIODIC.write_text("0")
    disks = found()
    slow = Path(disks[SLOW]).name
    single = {"asked": _asked(disks[SLOW])}
    yield {"bare": single | _run("bare", disks[SLOW], slow, program)}
    for name, build in LAYERS.items():
        for serial in (FAST, META):
            _emptied(disks[serial])
        if _PMEM.exists():
            _emptied(str(_PMEM))
        try:
            device = build(disks)
        except RuntimeError as error:
            yield {name: {"error": str(error)}}
            continue
        facts = {"table": built(["dmsetup", "table", device]), "asked": asked(device)}
        _clean(device)
        facts |= _run(name, device, slow, program)
        yield {name: facts}
        built(["dmsetup", "remove", "--noudevsync", "--noudevrules", device])


def _emptied(device: str) -> None:
    """Removes what an earlier layer left at the beginning of a device."""
    built(["dd", "if=/dev/zero", f"of={device}", "bs=1M", "count=1", "conv=fsync"])


def _clean(device: str) -> None:
    """Makes a layer write all it has to the disk."""
    subprocess.run(["dmsetup", "message", device, "0", "flush"], capture_output=True, check=False)
    time.sleep(_SETTLED_S)


def _asked(device: str) -> dict[str, list[int]]:
    """Returns the times (ns) of single writes of a page, of the flushes after them, and of FUA
    writes."""
    page = mmap.mmap(-1, loads.PAGE)
    page[:] = os.urandom(loads.PAGE)
    fd = os.open(device, os.O_RDWR | os.O_DIRECT)
    took: dict[str, list[int]] = {"write": [], "flush": [], "fua": []}
    for number in range(_ASKED):
        begun = time.monotonic_ns()
        os.pwrite(fd, page, number * loads.PAGE)
        written = time.monotonic_ns()
        os.fdatasync(fd)
        took["write"].append(written - begun)
        took["flush"].append(time.monotonic_ns() - written)
    os.close(fd)
    fd = os.open(device, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
    for number in range(_ASKED):
        begun = time.monotonic_ns()
        os.pwrite(fd, page, number * loads.PAGE)
        took["fua"].append(time.monotonic_ns() - begun)
    os.close(fd)
    return took


def _run(name: str, device: str, slow: str, program: Sequence[str]) -> dict[str, Any]:
    """Records the load on a fresh file system on a device."""
    mount = PLACE / name
    mount.mkdir(parents=True)
    make = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-N", "64"]
    built([*make, "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", device])
    options = "no_prefetch_block_bitmaps,nodelalloc,noinit_itable"
    built(["mount", "-t", "ext4", "-o", options, device, str(mount)])
    loads.prepare(str(mount))
    os.sync()
    _clean(device)
    notes = PLACE / f"{name}.json"
    before, status = loads.sectors_written(slow), _status(device)
    error = record(
        name, ["--backend", "ftrace"], [*program, "durable", str(notes), str(mount), slow]
    )
    statuses = [status, _status(device)]
    _clean(device)
    drained = loads.sectors_written(slow)
    built(["umount", str(mount)])
    _clean(device)
    facts: dict[str, Any] = {
        "dev": number_of(device),
        "disk": number_of(f"/dev/{slow}"),
        "error": error,
        "sectors_with_drain": drained - before,
        "status": statuses,
    }
    if notes.exists():
        facts["load"] = json.loads(notes.read_text())
        facts["sectors"] = facts["load"]["disk_sectors"] - before
    return facts


def _status(device: str) -> str:
    return built(["dmsetup", "status", device]) if "mapper" in device else ""
