"""Block devices that serve one request at a time, each in a stated time, and say when they did."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT, do_without
from tests.support.waiting import wait_for

_PYTHON = "/usr/bin/python3"
"""Debian's own, which its pyfuse3 is for."""
_SERVER = ROOT / "benchmarks/parts/slow_disk.py"
_PATIENCE_S = 20


class SlowDisk:
    """A device on `file`; `served` tells when the arm was at it, once the disk is gone."""

    def __init__(self, device: str, file: Path, request_ms: float, log: Path) -> None:
        """Takes the device's path, the server's file, its time for a request, and its log."""
        self.device = device
        self.file = file
        self._request_ms = request_ms
        self._log = log

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Serves the requests of the block without delay: those of what a test only prepares."""
        os.setxattr(self.file, "user.request_ms", b"0")
        try:
            yield
        finally:
            os.setxattr(self.file, "user.request_ms", str(self._request_ms).encode())

    def requests(self) -> list[tuple[int, int, int, int, str]]:
        """Returns what it served, in order: begin and end (ns of the monotonic clock), offset,
        bytes, and kind: r(ead), w(rite), or f(lush), which has no bytes."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        return [(*map(int, line[:4]), line[4]) for line in lines if line[4] != "l"]  # type: ignore

    def served(self, how: str) -> list[tuple[int, int]]:
        """Returns the times at which it served requests (ns of the monotonic clock); `how`: r(ead)
        or w(rite)."""
        return [(begin, end) for begin, end, *_, kind in self.requests() if kind == how]


@contextlib.contextmanager
def slow_disk(
    folder: Path, name: str, request_ms: float, size: int = 64 << 20
) -> Iterator[SlowDisk]:
    """Makes a slow disk on a loop device."""
    known = subprocess.run([_PYTHON, "-c", "import pyfuse3"], capture_output=True, check=False)
    if known.returncode:
        do_without("a slow disk", "TRACER_REQUIRE_KERNEL", "pyfuse3 is not installed")
    place, log = folder / name, folder / f"{name}.log"
    place.mkdir()
    options = ("--bytes", str(size), "--request-ms", str(request_ms), "--log", str(log))
    server = subprocess.Popen([_PYTHON, str(_SERVER), str(place), *options])
    try:
        wait_for(lambda: (place / "disk").exists(), "the slow disk", _PATIENCE_S)
        made = subprocess.run(
            ["losetup", "--find", "--show", "--direct-io=on", str(place / "disk")],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        try:
            yield SlowDisk(made.stdout.strip(), place / "disk", request_ms, log)
        finally:
            subprocess.run(["losetup", "-d", made.stdout.strip()], check=True)
    finally:
        # The kernel detaches a loop device only once nobody looks at it any more.
        wait_for(lambda: _is_unmounted(place), "the end of the slow disk", _PATIENCE_S)
        server.wait(_PATIENCE_S)


def _is_unmounted(place: Path) -> bool:
    subprocess.run(["umount", str(place)], check=False, capture_output=True)
    return not place.is_mount()
