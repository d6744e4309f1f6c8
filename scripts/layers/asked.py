"""The times of requests that a layer serves alone, from the kernel's events of bios.

They are those of the bios, as in a recording: without the way of a system call, and the time until
a thread wakes up. Needs only Python's standard library.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.layers.loads import PAGE

ROUNDS = 20
SCATTERED, LONG = 8, 32
"""Pages of writes at separate places, and of one long write."""
_FIRST = "first"
_INSTANCE = Path("/sys/kernel/tracing/instances/asked")
_EVENTS = ("block_bio_queue", "block_bio_complete")
_LINE = re.compile(r" ([0-9]+\.[0-9]+): (\w+): (.*)")
_BIO = re.compile(r"(\d+),(\d+) (\w+) \d+ \+ (\d+)")

Times = dict[str, list[int]]
"""Times in ns by kind: write (of a page), long (LONG pages in one), scattered (SCATTERED writes of
a page that come together: until the last one ends), flush (after a write) and fua (of a page)."""


def asked(device: str) -> Times:
    """Returns the times of requests of a stacked device, whose first pages are overwritten.

    No page is written twice, so that the layer has something to commit at every flush.
    """
    number = Path(device).stat().st_rdev
    with _recorded(number) as folder:
        _ask(device, folder / "trace_marker")
        return times((folder / "trace").read_text(), os.major(number), os.minor(number))


@contextmanager
def _recorded(number: int) -> Iterator[Path]:
    """Yields an instance of tracefs that records the bios of a device."""
    _INSTANCE.mkdir()
    try:
        (_INSTANCE / "buffer_size_kb").write_text("4096")
        for event in _EVENTS:
            # Kernel: MKDEV() of include/linux/kdev_t.h.
            kernel = os.major(number) << 20 | os.minor(number)
            (_INSTANCE / f"events/block/{event}/filter").write_text(f"dev == {kernel}")
            (_INSTANCE / f"events/block/{event}/enable").write_text("1")
        yield _INSTANCE
    finally:
        for event in _EVENTS:
            (_INSTANCE / f"events/block/{event}/enable").write_text("0")
        _INSTANCE.rmdir()


def _ask(device: str, marker: Path) -> None:
    """Sends each kind of request several times, after a mark with its name.

    The marks of the first time have another name.
    """
    buffer = mmap.mmap(-1, LONG * PAGE)
    buffer[:] = os.urandom(LONG * PAGE)
    direct, through, buffered = (
        os.open(device, os.O_RDWR | flags) for flags in (os.O_DIRECT, os.O_DIRECT | os.O_DSYNC, 0)
    )
    page = 0
    for number in range(ROUNDS + 1):
        is_first = number == 0  # slow: nothing is translated yet
        for kind, fd, count in (("write", direct, 1), ("long", direct, LONG), ("fua", through, 1)):
            marker.write_text(_FIRST if is_first else kind)
            os.pwrite(fd, memoryview(buffer)[: count * PAGE], page * PAGE)
            if kind != "fua":  # the kernel has flushed
                os.fdatasync(fd)
            page += count + 1
        marker.write_text(_FIRST if is_first else "scattered")
        for _ in range(SCATTERED):
            os.pwrite(buffered, memoryview(buffer)[:PAGE], page * PAGE)
            page += 2
        os.fdatasync(buffered)
    marker.write_text("end")
    for fd in (direct, through, buffered):
        os.close(fd)


def times(trace: str, major: int, minor: int) -> Times:
    """Returns the times of each kind from the text of a trace with marks before the requests."""
    found: Times = {kind: [] for kind in ("write", "long", "scattered", "flush", "fua")}
    kind = ""
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    for line in trace.splitlines():
        parts = _LINE.search(line)
        if line.startswith("#") or parts is None:
            continue
        at, event, said = float(parts[1]), parts[2], parts[3]
        bio = _BIO.match(said)
        if event == "tracing_mark_write":
            for one in began.keys() & ended.keys() & found.keys():
                if kind != _FIRST and not (kind == "fua" and one == "flush"):
                    found[one].append(round((ended[one] - began[one]) * 1e9))
            kind, began, ended = said, {}, {}
        elif bio and (int(bio[1]), int(bio[2])) == (major, minor) and bio[3][0] in "WF":
            one = kind if int(bio[4]) else "flush"
            if event == _EVENTS[0]:
                began.setdefault(one, at)
            else:
                ended[one] = at
    return found
