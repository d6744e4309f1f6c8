"""A real flush layer: ext4 on a slow disk, with its journal on the disk or on memory.

With `data=journal` and the journal on a device of memory, whatever is waited for is written there,
and the disk gets it later: ext4 itself is the non-volatile layer before the disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

_SERVER = Path(__file__).with_name("slow_disk.py")
_JOB = Path(__file__).with_name("fsync_job.py")
_PATIENCE_S = 20.0
_JOURNAL_BYTES = 64 << 20


@dataclass(frozen=True)
class Measured:
    """One run of the job: what it waited for, and what the disk was asked for meanwhile."""

    fsyncs: pd.DataFrame
    """start, dur_ns, file (log or checkpoint): every fsync of the job."""
    total_s: float
    """From its first write to its last fsync."""
    served: pd.DataFrame
    """begin, end (ns), offset, bytes, how (r, w or f): each request that the disk served, from the
    job's first write until the file system was unmounted."""

    @property
    def sectors_written(self) -> int:
        """Sectors (512 bytes) that the disk was given to write."""
        return int(self.served.loc[self.served.how == "w", "bytes"].sum()) // 512


def run(
    folder: Path, seconds: float, request_ms: float, layer: bool, recorder: Sequence[str] = ()
) -> Measured:
    """Run the job on a fresh file system on a fresh disk; `recorder` goes before its command.

    `folder` is to be on a file system of memory: the job's notes are written there.
    """
    with ExitStack() as stack:
        log = folder / "served"
        disk = stack.enter_context(_slow_disk(folder, 256 << 20, request_ms, log))
        journal = stack.enter_context(_memory_disk(folder, _JOURNAL_BYTES)) if layer else None
        with _file_system(folder, disk, journal) as mount:
            notes = folder / "fsyncs.json"
            subprocess.run(
                [*recorder, sys.executable, _JOB, mount, str(seconds), notes],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        served = pd.read_csv(log, sep=" ", names=["begin", "end", "offset", "bytes", "how"])
    fsyncs = pd.DataFrame(json.loads(notes.read_text()), columns=["start", "dur_ns", "file"])
    ended = int((fsyncs.start + fsyncs.dur_ns).max())
    begun = int(fsyncs.start.min())
    served = served[served.begin >= begun].reset_index(drop=True)
    return Measured(fsyncs, (ended - begun) / 1e9, served)


@contextmanager
def _slow_disk(folder: Path, size: int, request_ms: float, log: Path) -> Iterator[str]:
    place = folder / "slow"
    place.mkdir()
    options = ("--bytes", str(size), "--request-ms", str(request_ms), "--log", log)
    server = subprocess.Popen(["/usr/bin/python3", _SERVER, place, *options])
    try:
        _until(lambda: (place / "disk").exists() or server.poll() is not None)
        with _loop(place / "disk", "--direct-io=on") as device:
            yield device
    finally:
        subprocess.run(["umount", place], check=False, capture_output=True)
        server.wait(_PATIENCE_S)
        place.rmdir()


@contextmanager
def _memory_disk(folder: Path, size: int) -> Iterator[str]:
    image = folder / "journal"
    with image.open("wb") as file:
        file.truncate(size)
    with _loop(image) as device:
        yield device
    image.unlink()


@contextmanager
def _loop(file: Path, *options: str) -> Iterator[str]:
    command = ["losetup", "--find", "--show", *options, str(file)]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    device = made.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@contextmanager
def _file_system(folder: Path, disk: str, journal: str | None) -> Iterator[Path]:
    mount = folder / "mount"
    mount.mkdir()
    make = ["mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
    options = "no_prefetch_block_bitmaps"
    if journal is not None:
        subprocess.run(
            ["mke2fs", "-q", "-O", "journal_dev", "-b", "4096", journal], check=True,
            capture_output=True,
        )  # fmt: skip
        make += ["-J", f"device={journal}"]
        options += ",data=journal"
    subprocess.run([*make, disk], check=True, capture_output=True)
    subprocess.run(["mount", "-o", options, disk, mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)
        mount.rmdir()


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("the slow disk did not come up")
        time.sleep(0.05)
