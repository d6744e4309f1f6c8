"""Real flush layers: ext4 on a slow disk, bare, behind a layer, or with its journal in memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pandas as pd

_SERVER = Path(__file__).with_name("slow_disk.py")
_JOB = Path(__file__).with_name("fsync_job.py")
_BURSTS = Path(__file__).with_name("bursts.py")
_PATIENCE_S = 20.0
_DISK_BYTES, _JOURNAL_BYTES = 256 << 20, 64 << 20
_LAYER_PAGES = 1 << 14
_IDLE_S = 1.0


class Kind(StrEnum):
    """BARE: nothing before the disk. LAYER: a layer in the disk's server. JOURNAL: ext4's
    journal on a memory device, with data=journal, so that synchronous writes go there."""

    BARE = "bare"
    LAYER = "layer"
    JOURNAL = "journal"


@dataclass(frozen=True)
class Measured:
    """The results of one run of the job: its fsyncs, and the requests to the disk."""

    fsyncs: pd.DataFrame
    """Every fsync of the job: start, dur_ns, file (log or checkpoint)."""
    total_s: float
    """Time from the job's first write to its last fsync."""
    served: pd.DataFrame
    """Requests that the disk served, from the job's first write until unmount: begin, end (ns),
    offset, bytes, how (r, w, f, d or l, the letters of slow_disk.py)."""

    @property
    def sectors_written(self) -> int:
        """Sectors (512 bytes) written to the disk, plus those left in a layer."""
        return int(self.served.loc[self.served.how.isin(["w", "d", "l"]), "bytes"].sum()) // 512


def run(
    folder: Path,
    lines: int,
    request_ms: float,
    kind: Kind,
    recorder: Sequence[str | Path] = (),
    age_ms: float = 0.0,
) -> Measured:
    """Runs the job on a fresh file system on a fresh disk; `recorder` goes before its command.

    `folder` must be on a memory file system: the job's notes are written there. `age_ms`: the age
    at which a layer destages a page to the disk.
    """
    log, notes = folder / "served", folder / "fsyncs.json"
    with ExitStack() as stack:
        layer = ("--layer-pages", str(_LAYER_PAGES), "--age-ms", str(age_ms))
        options = layer if kind is Kind.LAYER else ()
        disk = stack.enter_context(_slow_disk(folder, request_ms, log, options))
        has_journal = kind is Kind.JOURNAL
        journal = stack.enter_context(_memory_disk(folder)) if has_journal else None
        with _file_system(folder, disk, journal) as mount:
            if kind is Kind.LAYER:
                _until_idle(log, age_ms / 1e3 + _IDLE_S)
            subprocess.run(
                [*recorder, sys.executable, _JOB, mount, str(lines), notes],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    served = pd.read_csv(log, sep=" ", names=["begin", "end", "offset", "bytes", "how"])
    fsyncs = pd.DataFrame(json.loads(notes.read_text()), columns=["start", "dur_ns", "file"])
    ended = int((fsyncs.start + fsyncs.dur_ns).max())
    begun = int(fsyncs.start.min())
    served = served[served.begin >= begun].reset_index(drop=True)
    return Measured(fsyncs, (ended - begun) / 1e9, served)


def ask_memory(folder: Path, recorder: Sequence[str | Path]) -> None:
    """Records the times of the journal's device under bursts.py."""
    with _memory_disk(folder) as device:
        _ask(device, recorder)


def ask_layer(folder: Path, recorder: Sequence[str | Path]) -> None:
    """Records the times of the layer before the slow disk."""
    options = ("--layer-pages", str(_LAYER_PAGES), "--age-ms", "1e6")
    with _slow_disk(folder, 8.0, folder / "served", options) as device:
        _ask(device, recorder)


def _ask(device: str, recorder: Sequence[str | Path]) -> None:
    subprocess.run(
        [*recorder, sys.executable, _BURSTS, device],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def _slow_disk(
    folder: Path, request_ms: float, log: Path, more: Sequence[str] = ()
) -> Iterator[str]:
    place = folder / "slow"
    place.mkdir()
    options = ["--bytes", str(_DISK_BYTES), "--request-ms", str(request_ms), "--log", str(log)]
    command: list[str | Path] = ["/usr/bin/python3", _SERVER, place, *options, *more]
    server = subprocess.Popen(command)
    try:
        _until(lambda: (place / "disk").exists() or server.poll() is not None)
        with _loop(place / "disk", "--direct-io=on") as device:
            yield device
    finally:
        subprocess.run(["umount", place], check=False, capture_output=True)
        server.wait(_PATIENCE_S)
        place.rmdir()


@contextmanager
def _memory_disk(folder: Path) -> Iterator[str]:
    image = folder / "journal"
    with image.open("wb") as file:
        file.truncate(_JOURNAL_BYTES)
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
    # Few inodes and no zeroing, which would keep a layer busy for long.
    make = ["mkfs.ext4", "-q", "-b", "4096", "-N", "64", "-E", "lazy_journal_init=1"]
    # data=journal allocates blocks at once. Layouts are equal only if ext4 always does so.
    options = "no_prefetch_block_bitmaps,nodelalloc"
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


def _until_idle(log: Path, idle_s: float) -> None:
    """Waits until the disk has been idle for this time."""
    size, since = -1, time.monotonic()
    while time.monotonic() < since + idle_s:
        if (now := log.stat().st_size) != size:
            size, since = now, time.monotonic()
        time.sleep(0.05)


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("the slow disk did not start")
        time.sleep(0.05)
