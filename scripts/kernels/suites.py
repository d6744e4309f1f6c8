"""The sets of loads and checks, each with the page that its table is on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scripts.kernels import checks, facts
from scripts.kernels.cgroups import checks as of_cgroups
from scripts.kernels.check import Check
from scripts.kernels.waiting import checks as of_waiting
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.reading.reads import reads
from tracer.analysis.views.waiting.waits import waits
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace


@dataclass(frozen=True)
class Suite:
    """Checks of one recording by each backend."""

    results: str
    """Name of the folder for what a guest hands over."""
    checks: tuple[Check, ...]
    views: tuple[Callable[[Trace], object], ...]
    """Those that the checks ask."""
    page: str
    options: tuple[str, ...] = ()
    """Options that choose it."""
    asks_doctor: bool = True
    """The guest asks `tracer doctor` first, which takes a while."""


ALL = Suite(
    facts.ALL,
    checks.CHECKS,
    (flushes, requests),
    """\
# Other kernels

This page tells on which kernels a recording was tested, and what differed. The command

    {command}

boots Debian's kernels in QEMU without hardware support, records the same loads by each backend in
the guest, makes the tables outside it, and compares exact numbers. "ok" holds for every backend
unless some are named. A number in brackets names the note with the reason. The seconds are those of
a whole test, most of them in the guest. Access to memory is not compared on arm64: its kernel does
not tell whether a fault read or wrote. There are pages of their own for limits of
[cgroups](cgroups.md) and for [reads and sleeps](waiting.md).

{table}
""",
)
CGROUPS = Suite(
    facts.CGROUPS,
    of_cgroups.CHECKS,
    (waits,),
    """\
# Cgroups of version 2 alone

This page tells how recordings of cgroups, and the limits of studies, were tested on machines that
have cgroups of version 2 only. The command

    {command}

boots Debian's kernels in QEMU with cgroups of version 2 and none of version 1. A cgroup of its own
limits each load: `memory.max`, `memory.high` or `cpu.max`. Others are made, entered, left, killed
and removed while their parent is recorded. The numbers of the recording are compared with those of
the load and with the kernel's own files at its end. Two checks need no recording: the limited media
of a [study](studies.md#storage-media) (`io.max`), and its memory limit of a job on the host. "ok"
holds for every backend unless some are named. A number in brackets names the note with the reason.
The seconds are those of a whole test, most of them in the guest.

- The kernel may count a thread as throttled that still runs. `waits` is compared with the throttled
  time, at most the time in which the thread used no CPU.
- A process that enters a cgroup from outside during the recording is followed a moment later. The
  loss `joins` says so, and is no failure here.
- The write-back of a new file takes up to 1 / 0.7 of the time that `io.max` allows: its bios are
  large, and the kernel reckons in slices of time.

{table}
""",
    ("--cgroups",),
)
WAITING = Suite(
    facts.WAITING,
    of_waiting.CHECKS,
    (reads,),
    """\
# Reads and sleeps on other kernels

This page tells on which kernels the probe `page_cache` and kernel stacks (`--stacks`) were tested,
and what differed. The command

    {command}

boots Debian's kernels in QEMU without hardware support, and records by each backend the events that
only options record: pages of files that are read (`-e page_cache`, the view [reads](reads.md)), and
kernel stacks of sleeps ([--stacks](explain.md#functions-of-the-kernel)). The numbers are those of
the loads, which count the pages that they use. "ok" holds for every backend unless some are named.
A number in brackets names the note with the reason. The seconds are those of a whole test, most of
them in the guest.

- Missed pages are compared only in loads for which the kernel reads nothing ahead. The tables are
  made outside the guest, so the guest tells the names of its files, except that of one file.
- Each sleep of a target's thread has a stack, and nothing else has one. The sleeps of a load are as
  many as the kernel counts (`ru_nvcsw`). Their stacks have a function of what the thread waits for.
- Linux 7.2 maps more pages around a fault than it logs: the load touches 107 pages, and fewer are
  counted. A cold read of 1000 bytes may count one page too few where accesses are logged. Both are
  [limits](reads.md#limits) of what the kernel logs.

{table}
""",
    ("--waiting",),
    asks_doctor=False,
)
