"""Limits that the product itself sets for a job, tried in a guest.

python -m scripts.kernels.cgroups.trials medium|memory FOLDER    print the results as JSON
"""

from __future__ import annotations

import json
import mmap
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tracer.workloads.containers.limits import Speed
from tracer.workloads.modes import cgroups
from tracer.workloads.modes.cgroups import Memory, Share, entering
from tracer.workloads.studies import media, throttle
from tracer.workloads.studies.scratch import Scratch
from tracer.workloads.studies.throttle import Throttle

MIB = 1 << 20
SPEED = Speed(4_000_000, 4_000_000, 100_000, 100_000)
FEW = Speed(10**9, 10**9, 50, 50)
BYTES, REQUESTS = 16 * MIB, 200
LIMIT = 48 * MIB
_PIECE, _AT_ONCE = MIB // 4, 8
_PASSES, _CLOSE = 8, 0.95
_SIZE = 128 * MIB
_TRIALS = [sys.executable, "-m", "scripts.kernels.cgroups.trials"]
_ROOT = Path("/sys/fs/cgroup")
_GREEDY = f"""
import os
print(open('/proc/self/cgroup').read(), flush=True)
held = b'x' * {4 * LIMIT}
"""


def medium(folder: Path) -> dict[str, Any]:
    """Measures a limited medium in bytes and in requests per second, and looks for what is left."""
    before = _left()
    found: dict[str, Any] = {}
    with Scratch(folder, _SIZE, media.find_medium("disk")) as scratch:
        path = scratch.mount / "file"
        path.write_bytes(os.urandom(BYTES))
        key = scratch.mount.parent
        found["device"] = scratch.device
        found["free"] = {"read": _read(path), "written": _written(path)}
        with Throttle(scratch.device, SPEED, key) as limit:
            found["about"] = limit.about
            found["within"] = _left()
            found["limited"] = {"read": _read(path), "written": _written(path)}
            found["limited"]["read by a job in a cgroup"] = _read_in_cgroup(path)
            back = _best(lambda: _written_back(scratch.mount), 0.8 * SPEED.write_bytes_per_s)
            found["written back"] = back
        with Throttle(scratch.device, FEW, key):
            found["few"] = {
                what: _best(partial(_random, path, write), FEW.read_iops)
                for what, write in (("read", False), ("written", True))
            }
        found["after"] = {"read": _read(path), "written": _written(path)}
    return {**found, "left": [before, _left()]}


def memory(folder: Path) -> dict[str, Any]:
    """Has a job on the host reach its limit, as a study does."""
    before = _left()
    planned = cgroups.plan(Share(quota=0.5), "traintrace-trial", memory=Memory(LIMIT))
    made = cgroups.make(planned)
    try:
        files = {name: (made[0] / name).read_text().strip() for name in ("memory.max", "cpu.max")}
        ran = subprocess.run(
            entering(made, [sys.executable, "-S", "-E", "-c", _GREEDY]),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        killed = cgroups.out_of_memory(made)
    finally:
        cgroups.remove(planned)
    return {
        "made": [str(path) for path in made], "files": files, "cgroup": ran.stdout.strip(),
        "status": ran.returncode, "out_of_memory": killed, "left": [before, _left()],
    }  # fmt: skip


def _left() -> dict[str, Any]:
    """Returns what a limit may leave: groups, limits of devices, and enabled controllers."""
    return {
        "groups": sorted(path.name for path in _ROOT.glob("traintrace-*")),
        "limits": sorted({line for path in _ROOT.glob("**/io.max")
                          for line in path.read_text().splitlines()}),
        "controllers": sorted((_ROOT / "cgroup.subtree_control").read_text().split()),
        "own": throttle.Hierarchy(_ROOT, unified=True).own().name,
    }  # fmt: skip


def _best(measured: Callable[[], float], allowed: float) -> float:
    """Returns the best of some passes, the last of which comes close to what is allowed.

    A guest without a CPU of its own is late to start a transfer, but no pass exceeds a limit.
    """
    best = 0.0
    for _ in range(_PASSES):
        best = max(best, measured())
        if best > _CLOSE * allowed:
            break
    return best


def _read(path: Path) -> float:
    """Returns the bytes per second of direct reads of a file."""
    return _best(
        lambda: _moved(path, lambda fd, piece, at: os.preadv(fd, [piece], at)),
        SPEED.read_bytes_per_s,
    )


def _written(path: Path) -> float:
    """Returns the bytes per second of direct writes to a file."""
    return _best(lambda: _moved(path, os.pwrite), SPEED.write_bytes_per_s)


def _moved(path: Path, move: Callable[[int, mmap.mmap, int], int]) -> float:
    """Returns the bytes per second of several transfers at the same time.

    One after the other, they would also take the time of a slow CPU.
    """
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    begun = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        starts = range(0, BYTES, _PIECE)
        moved = threads.map(lambda at: move(fd, mmap.mmap(-1, _PIECE), at), starts)
    os.close(fd)
    return sum(moved) / (time.monotonic() - begun)


def _read_in_cgroup(path: Path) -> float:
    """Returns the same for a job in a cgroup of its own, as one with a memory limit has."""
    planned = cgroups.plan(Share(), "traintrace-job", memory=Memory(LIMIT))
    made = cgroups.make(planned)
    try:
        return float(subprocess.check_output(entering(made, [*_TRIALS, "read", str(path)])))
    finally:
        cgroups.remove(planned)


def _written_back(folder: Path) -> float:
    """Returns the bytes per second of writing a new file and of its write-back."""
    content = os.urandom(BYTES)
    begun = time.monotonic()
    with (folder / "new").open("wb") as file:
        file.write(content)
        file.flush()
        os.fdatasync(file.fileno())
    taken = time.monotonic() - begun
    (folder / "new").unlink()
    return BYTES / taken


def _random(path: Path, write: bool) -> float:
    """Returns the requests per second of direct transfers of pages at random."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    pages = random.Random(0).sample(range(BYTES // mmap.PAGESIZE), REQUESTS)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    begun = time.monotonic()
    for page in pages:
        if write:
            os.pwrite(fd, memory, page * mmap.PAGESIZE)
        else:
            os.preadv(fd, [memory], page * mmap.PAGESIZE)
    taken = time.monotonic() - begun
    os.close(fd)
    return REQUESTS / taken


def main() -> None:
    """Runs one trial."""
    json.dump(
        {"medium": medium, "memory": memory, "read": _read}[sys.argv[1]](Path(sys.argv[2])),
        sys.stdout,
    )


if __name__ == "__main__":
    main()
