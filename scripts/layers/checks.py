"""The checks of stacked devices: exact pages on every level of each stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.kernels.recorded import Asked, Failed
from scripts.layers.loads import LEFT
from scripts.layers.stacks import Stack
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
from tracer.analysis.report.writeback import FLUSHED_PAGES
from tracer.analysis.views.writing.flushes import flushes
from tracer.analysis.views.writing.submissions import SECTORS_PER_PAGE
from tracer.store.trace import Trace

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Built:
    """A stack in a recording."""

    stack: Stack
    disks: list[str]
    """The whole disks at its bottom."""
    levels: list[str]
    """The devices above them, from the lowest to the top."""
    files: dict[int, int]
    """Pages of each fsynced file, by inode."""
    left: int
    """Inode of the file that a sync writes."""
    first: int
    """The sector of the first disk at which the data begins; before it lies metadata."""

    @property
    def top(self) -> str:
        return self.levels[-1]

    def below(self) -> list[tuple[list[str], int]]:
        """Returns the devices of each lower level, with the times that they get a page."""
        found = [([level], 1) for level in reversed(self.levels[:-1])]
        return [*found, (self.disks, self.stack.copies)]


class Stacks(Asked):
    """The recording of all stacks."""

    def __init__(self, trace: Trace, facts: dict[str, Any]) -> None:
        """Takes an opened trace; makes the view that the checks ask."""
        super().__init__(trace)
        self.pid = facts["load"]["pid"]
        self._facts = facts
        flushes(trace)

    def built(self, stack: Stack) -> Built:
        """Returns what the guest built. Raises Failed if it could not."""
        made = self._facts["built"][stack.name]
        if "error" in made:
            raise Failed(made["error"])
        written = self._facts["load"]["folders"][made["mount"]]
        files = {int(ino): pages for ino, pages in written["files"].items()}
        levels, first = made["levels"], made["first"]
        return Built(stack, made["disks"], levels, files, written["left"], first)


def _files(recorded: Stacks, built: Built, devices: list[str], copies: int) -> None:
    """Raises Failed unless the pages, reasons and writers of all files are known on a level."""
    wanted: Rows = [
        (ino, "fsync", "fsync", "exact", recorded.pid, "target", pages * copies)
        for ino, pages in built.files.items()
    ]
    wanted.append((built.left, "sync", None, "exact", recorded.pid, "target", LEFT * copies))
    names = ", ".join(f"'{dev}'" for dev in devices)
    recorded.expect(
        sorted(wanted),
        "SELECT ino, reason, call, certainty, dirtier, whose, sum(pages)::INT FROM flushes "
        f"WHERE dev IN ({names}) AND ino IN {(*built.files, built.left)} "
        "AND dirtier IS NOT NULL GROUP BY ALL ORDER BY ALL",
    )


def _late(recorded: Stacks, built: Built) -> None:
    """Raises Failed unless each page of the files reaches the first disk, and does so once."""
    files = built.files | {built.left: LEFT}
    recorded.expect(
        sorted(files.items()),
        "WITH above AS (SELECT ino, sector::BIGINT + ? AS start, nr_sector AS length FROM flushes"
        f" WHERE dev = ? AND dirtier IS NOT NULL AND ino IN {tuple(files)}),"
        " late AS (SELECT sector::BIGINT AS start, nr_sector AS length FROM flushes WHERE dev = ?)"
        " SELECT ino::BIGINT, (sum(least(a.start + a.length, b.start + b.length)"
        f" - greatest(a.start, b.start)) // {SECTORS_PER_PAGE})::BIGINT"
        " FROM above a JOIN late b ON a.start < b.start + b.length AND b.start < a.start + a.length"
        " GROUP BY ino ORDER BY ino",
        *(built.first, built.top, built.disks[0]),
    )


def on_top(recorded: Stacks, stack: Stack) -> None:
    """Checks the device with the file system."""
    built = recorded.built(stack)
    _files(recorded, built, [built.top], 1)


def on_lower(recorded: Stacks, stack: Stack) -> None:
    """Checks every level below it."""
    built = recorded.built(stack)
    for devices, copies in built.below():
        _files(recorded, built, devices, copies)
    if stack.is_late:
        _late(recorded, built)


def all_pages(recorded: Stacks, stack: Stack) -> None:
    """Checks that metadata and the journal are equal on all levels, too."""
    built = recorded.built(stack)
    pages = Counter(dict(recorded.rows(
        # Not bcache's superblock, which is written by the first thread that makes a cache dirty.
        "SELECT dev, sum(pages)::INT FROM flushes WHERE reason != 'other'"
        " AND NOT (dev = ? AND sector < ?) GROUP BY dev",
        *(built.disks[0], built.first),
    )))  # fmt: skip
    for devices, copies in built.below():
        found = sum(pages[dev] for dev in devices)
        if found != pages[built.top] * copies:
            raise Failed(f"{found} pages on {', '.join(devices)}, {pages[built.top]} on the top")


def one_level(recorded: Stacks, stack: Stack) -> None:
    """Checks that the what-if and the report count the top, and say which levels they leave out."""
    built = recorded.built(stack)
    accesses = page_writebacks(recorded.trace)
    lower = {dev for devices, _ in built.below() for dev in devices}
    (pages,) = recorded.rows("SELECT sum(pages)::INT FROM flushes WHERE dev = ?", built.top)[0]
    if accesses.by_device.get(built.top) != pages or lower & accesses.by_device.keys():
        raise Failed(f"it counts {accesses.by_device}, not the {pages} pages of {built.top}")
    if not lower <= accesses.below.keys():
        raise Failed(f"it does not tell that it leaves out {lower - accesses.below.keys()}")
    told = FLUSHED_PAGES.of(recorded.trace)["pages"].sum()
    (once,) = recorded.rows("SELECT sum(pages)::INT FROM flushes WHERE NOT below")[0]
    if not told == once == len(accesses):
        raise Failed(f"the report counts {told} pages, the what-if {len(accesses)}")


def reads_below(recorded: Stacks, stack: Stack) -> None:
    """Checks that the what-if of each level finds the pages that are read there in their files.

    It finds none of them where no event tells whose they are.
    """
    built = recorded.built(stack)
    pages = sum(built.files.values()) + LEFT
    is_told = stack.remaps and not stack.is_cache
    for devices in [[built.top], *(devices for devices, _ in built.below())]:
        in_files = {
            reads: page_writebacks(
                recorded.trace, devices, Identity.FILE, reads=reads, all_writers=True
            ).by_mapping["file"]
            for reads in (False, True)
        }
        found, wanted = in_files[True] - in_files[False], pages * (is_told or built.top in devices)
        if found != wanted:
            raise Failed(f"{found} pages of files are read on {', '.join(devices)}, not {wanted}")


@dataclass(frozen=True)
class Check:
    """A question to each stack."""

    short: str
    """The head of the table's column."""
    look: Callable[[Stacks, Stack], None]
    """Raises Failed."""


CHECKS = (
    Check("file system's device", on_top),
    Check("devices below", on_lower),
    Check("metadata and journal", all_pages),
    Check("counted once", one_level),
    Check("reads below", reads_below),
)
"""In the order of the table's columns."""


def opened(folder: Path, facts: dict[str, Any]) -> Stacks:
    """Opens the recording of all stacks in the folder for results."""
    if facts["error"] is not None or facts["load"] is None:
        raise Failed(f"no recording: {facts['error']}")
    return Stacks(Trace(folder / "stacks.trace"), facts)
