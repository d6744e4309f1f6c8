"""Block devices that serve one request at a time, each in a stated time, and say when they did."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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


def spent(
    requests: Iterable[tuple[int, int, int, int, str]],
    window: tuple[int, int],
    part_of: Callable[[int, str], str],
) -> dict[str, tuple[int, int]]:
    """Returns the least and the most time (ns) within a window that each part took.

    The least is what the disk spent on the part's requests; `part_of` tells the part of a request
    by its offset and kind, and sees them in order. The most has the pauses before and after them,
    too: then a request is on its way, or its end is noticed, however late on a busy machine.
    """
    least: Counter[str] = Counter()
    pauses: Counter[str] = Counter()
    last, free = None, window[0]
    for begin, end, offset, _, kind in requests:
        begin, end = max(begin, window[0]), min(end, window[1])
        if begin >= end:
            continue
        part = part_of(offset, kind)
        least[part] += end - begin
        for beside in {part, last or part}:
            pauses[beside] += begin - free
        last, free = part, end
    if last:
        pauses[last] += window[1] - free
    return {part: (time, time + pauses[part]) for part, time in least.items()}


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
