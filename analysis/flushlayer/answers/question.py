"""The settings of a simulation, and the description of its input."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tracer.analysis.flushlayer.curves.every_capacity import PAGE_BYTES
from tracer.analysis.flushlayer.devices import Device
from tracer.analysis.flushlayer.policies import Operations, find_policy
from tracer.analysis.flushlayer.policies.operations import BUFFERS, operations
from tracer.analysis.flushlayer.trace.accesses import PATH_NOT_KNOWN, Accesses, Identity
from tracer.analysis.flushlayer.trace.partial_writes import leaves_part
from tracer.analysis.views.writing.submissions import SECTORS_PER_PAGE
from tracer.probes.errors import UsageError
from tracer.store.trace import Trace

DEFAULT_SHARE = 0.25
_MOST_PAGES = 1 << 40
_MOST_SHARE = 1e6


@dataclass(frozen=True)
class Capacity:
    """The size of a layer: in bytes, in pages, or as a share of the distinct pages written."""

    bytes: int | None = None
    pages: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        """Raises UsageError if more than one is given or a value is out of range."""
        given = [value for value in (self.bytes, self.pages, self.share) if value is not None]
        if len(given) > 1:
            raise UsageError(
                "the capacity is given more than once",
                "give only one of --capacity, --capacity-pages, --capacity-share",
            )
        if self.pages is not None and not 0 <= self.pages < _MOST_PAGES:
            raise UsageError(
                f"a capacity of {self.pages} pages cannot be", f"give 0 to {_MOST_PAGES - 1}"
            )
        if self.bytes is not None and not 0 <= self.bytes < _MOST_PAGES * PAGE_BYTES:
            raise UsageError(f"a capacity of {self.bytes} bytes cannot be", "give e.g. 64M")
        if self.bytes is not None and 0 < self.bytes < PAGE_BYTES:
            raise UsageError(
                f"a capacity of {self.bytes} bytes is less than one page of {PAGE_BYTES} bytes",
                "give the bytes of whole pages",
            )
        if self.share is not None and not (
            math.isfinite(self.share) and 0 <= self.share <= _MOST_SHARE
        ):
            raise UsageError(f"a capacity share of {self.share} cannot be", "give e.g. 0.25")

    def of(self, unique: int) -> int:
        """Returns the size in pages for `unique` distinct pages; a share is rounded up."""
        if self.bytes is not None:
            return self.bytes // PAGE_BYTES
        if self.pages is not None:
            return self.pages
        # A number of 64 bits is not what was written: 0.07 * 100 is above 7.
        share = Fraction(str(DEFAULT_SHARE if self.share is None else self.share))
        return math.ceil(share * unique)

    def said(self, unique: int) -> str:
        """Returns a sentence on the capacity and its origin."""
        if self.bytes is not None:
            return f"capacity {self.bytes} bytes, as given"
        if self.pages is not None:
            return f"capacity {self.pages} pages, as given"
        if self.share is None:
            how = "the default, because the paper gives none"
            return f"capacity {DEFAULT_SHARE:g} of the {unique} distinct pages, {how}"
        return f"capacity {self.share:g} of the {unique} distinct pages, as given"


@dataclass(frozen=True)
class Question:
    """A layer, its medium, and the disk behind it."""

    medium: Device
    disk: Device
    capacity: Capacity = field(default_factory=Capacity)
    policy: str = "lru"
    buffer: str = "write-only"
    identity: Identity = Identity.BLOCK

    def __post_init__(self) -> None:
        """Raises UsageError for an unknown policy or buffer."""
        find_policy(self.policy)
        if self.buffer not in BUFFERS:
            raise UsageError(f"there is no buffer {self.buffer!r}", f"known: {', '.join(BUFFERS)}")

    @property
    def reads(self) -> bool:
        """True if reads change the answer of the models without time (`paper`, `curve`)."""
        return self.buffer == "read-write"

    def operations(self, accesses: Accesses) -> Operations | None:
        """Returns the operation of each access on the layer; None: all are writes into it."""
        bios = accesses.bios
        if bios is None or (self.buffer == "write-only" and bios.write.all()):
            return None
        of = bios.of_pages()
        partly = None
        if self.buffer == "sync-only":
            partly = leaves_part(bios, accesses.page, accesses.unique)
        return operations(self.buffer, bios.write[of], bios.waited[of], partly)


IDENTITIES = {
    Identity.BLOCK: "pages identified by block (device and page): a layer below the file system; a"
    " file that is truncated and rewritten gets new blocks and counts as new pages",
    Identity.FILE: "pages identified by file (inode and page of the file): a layer below the page"
    " cache; a file that is truncated and rewritten counts as the same pages again",
    Identity.PATH: "pages identified by path (the last name of the file, and page of the file): a"
    " layer that knows names; a file that is renamed over an old one counts as the old one's pages"
    " again (the rename is recognized on ext4, if its system call was recorded)",
    Identity.INDEX: "pages identified by index (page of the file, whatever the file): the index in"
    " the kernel's events of dirtying without their inode; no layer could serve so, because pages"
    " of all files with one index count as one page",
}
"""The meaning of each identity, to be shown beside a number."""


def _small(accesses: Accesses) -> str:
    bios = accesses.bios
    if bios is None:
        return ""
    data = bios.write & (bios.sectors > 0)
    small = int((data & (bios.sectors < SECTORS_PER_PAGE)).sum())
    return f"; {small:,} of {int(data.sum()):,} writes are smaller than a page" if small else ""


def _one_level(accesses: Accesses) -> list[str]:
    """Returns the level that counts, and the pages left out below it; nothing if there are none."""
    levels = ", ".join(accesses.by_device)
    upper = f"the uppermost: {levels}" if levels else "the uppermost"
    counted = [f"each page counts on one level, {upper}"] if accesses.below else []
    counted += [
        f"{pages:,} pages of {dev} do not count again: a device above it (loop, device mapper, md,"
        f" bcache) handed them on; --dev {dev} counts them there"
        for dev, pages in accesses.below.items()
    ]
    reads = accesses.loop_reads
    if reads.guessed:
        counted.append(
            f"{reads.guessed:,} of these pages were read by threads of the kernel, from files that"
            " no event names: they are taken for reads of a loop device's file (record the probes"
            " extents and page_cache)"
        )
    if reads.doubtful:
        counted.append(
            f"{reads.doubtful:,} pages were read below a loop device by unknown threads, from files"
            " that no event names: they may count twice (record the probe processes)"
        )
    return counted


def input_facts(accesses: Accesses) -> dict[str, Any]:
    """Returns the facts of the input.

    Keys: unique_pages (U), by_reason, by_device (pages), own_requests_left_out, below_left_out
    (pages by device: see `Accesses.below`), writers (see `Writers.facts`; None: not known).
    """
    return {
        "unique_pages": accesses.unique_written,
        "by_reason": accesses.by_reason,
        "by_device": accesses.by_device,
        "own_requests_left_out": accesses.own,
        "below_left_out": accesses.below,
        "writers": None if accesses.writers is None else accesses.writers.facts(),
    }


def serves(facts: Mapping[str, Any]) -> bool:
    """Returns whether the layer of an answer has something to do, by the facts of the answer."""
    reads = facts.get("reads") or any(row["op"] == "read" for row in facts.get("latency", ()))
    return bool(facts["requests"] or (reads and facts["buffer"] == "read-write"))


def about_gaps(trace: Trace) -> list[str]:
    """Returns a sentence if a recording has gaps, or if it is not known whether it has."""
    gaps = trace.manifest["loss"].get("windows")
    if gaps is None:
        return ["it is not known whether the recording has gaps"]
    number = "a gap" if gaps == 1 else f"{gaps:,} gaps"
    return [f"the recording has {number}: write-backs may be missing"] if gaps else []


def about_input(accesses: Accesses) -> list[str]:
    """Returns sentences on the pages that count and on their identity."""
    said = [
        IDENTITIES[accesses.identity],
        *([] if accesses.writers is None else accesses.writers.said()),
        "the tracer's own files do not count",
        *_one_level(accesses),
        "a write counts as one access to each page of 4096 bytes that it touches, even a write of"
        " 512 bytes" + _small(accesses),
    ]
    lost = accesses.by_mapping.get("not mapped", 0)
    if lost:
        said.append(
            f"the file of {lost} of {len(accesses)} pages is not known (their extents were not"
            " recorded); these pages are identified by block"
        )
    lost = accesses.by_mapping.get(PATH_NOT_KNOWN, 0)
    if lost:
        said.append(
            f"the path of {lost} of {len(accesses)} pages is not known (their files had no name at"
            " the end of the recording); these pages are identified by file"
        )
    return said
