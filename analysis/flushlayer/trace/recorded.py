"""A recording as input of the timed model: bios with their issuers and completions.

Closed replay keeps the think time of an issuer between the completion that it waited for and its
next bio. If a process waits for the journal, the waiting process does not submit the bio: the
journal's thread writes the data that a call makes durable. So a bio of the journal belongs to the
process whose sync call is under way if there is only one; else to the process that submitted it.

Bios that are adjacent on the device and completed in one request become one bio, because the block
layer merged them before the device saw them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.timed.requests import Requests
from tracer.analysis.flushlayer.timed.state import FLUSH, READ, WRITE
from tracer.analysis.flushlayer.trace.accesses import Accesses, Bios
from tracer.analysis.flushlayer.trace.bio_parts import PageBegins
from tracer.analysis.flushlayer.trace.last_requests import LastRequests, last_requests
from tracer.analysis.views.waiting.stalls import STALLS
from tracer.analysis.views.writing.submissions import SECTORS_PER_PAGE
from tracer.probes.errors import BadTrace
from tracer.store.trace import Trace

_JOURNAL = "journal"


def recorded_requests(trace: Trace, accesses: Accesses) -> Requests:
    """Returns the bios of `accesses` as requests; a write with a preflush becomes a flush and a
    write.

    `accesses` has `bios` (with reads and flushes if these are simulated). Needs table block; the
    tables syscalls and file_writes show who waits for the journal. Raises ValueError without bios,
    BadTrace if a bio has no device.
    """
    bios = accesses.bios
    if bios is None:
        raise ValueError("the accesses have no bios")
    nowhere = int((bios.device < 0).sum())
    if nowhere:
        raise BadTrace(
            f"{trace.folder}: {nowhere:,} of {len(bios):,} bios have no device, and the model"
            " needs one of each",
            "choose devices with --dev, or take the model paper or curve",
        )
    last = last_requests(trace, bios)
    chain = issuers(trace, bios)
    leads = ~_continued(bios, chain, last)
    pages = np.add.reduceat(bios.pages, np.flatnonzero(leads)) if len(bios) else bios.pages
    all_pages = np.zeros(len(bios), np.int32)
    all_pages[leads] = pages
    sectors = np.zeros(len(bios), np.int64)
    sectors[leads] = np.add.reduceat(bios.sectors, np.flatnonzero(leads)) if len(bios) else 0
    # Each bio appears once; a write with a preflush appears twice, first as a flush without pages.
    times = np.where(bios.flush & bios.write & (bios.pages > 0), 2, 1)
    of = np.repeat(np.flatnonzero(leads), times[leads])
    first_of_two = np.zeros(len(of), bool)
    first_of_two[:-1] = of[:-1] == of[1:]
    only_flush = first_of_two | (bios.pages[of] == 0)
    op = np.where(bios.write[of], WRITE, READ)
    op[only_flush] = FLUSH
    ts = bios.ts[of]
    return Requests(
        ts=ts,
        op=op.astype(np.uint8),
        device=bios.device[of],
        sector=np.minimum(bios.sector[of], np.uint64(1 << 54)).astype(np.int64),
        pages=np.where(only_flush, 0, all_pages[of]).astype(np.int32),
        sectors=np.where(only_flush, 0, sectors[of]),
        first=bios.first[of],
        page=accesses.page,
        unique=accesses.unique,
        fua=bios.fua[of] & ~only_flush,
        waited=bios.waited[of],
        tenant=bios.tenant[of],
        reason=bios.reason[of],
        phase=bios.phase[of],
        chain=chain[of],
        # The end of the flush is not recorded; the write comes after it.
        done=np.where(first_of_two, ts, last.done[of]),
        ahead=None if bios.begins is None else _ahead(bios, bios.begins, leads),
        within=None if bios.begins is None else bios.begins.within,
    )


def _continued(bios: Bios, chain: NDArray[np.int64], last: LastRequests) -> NDArray[np.bool_]:
    """Returns whether each bio continues the bio before it, on the device and in one request.

    Bios of different tenants, reasons or phases stay apart, and so do those that nobody waits for.
    """
    found = np.zeros(len(bios), np.bool_)
    ends = bios.sector + bios.sectors.astype(np.uint64)
    found[1:] = (last.row[1:] >= 0) & (bios.pages[1:] > 0) & (bios.sector[1:] == ends[:-1])
    inside: NDArray[np.unsignedinteger] = bios.sector % np.uint64(SECTORS_PER_PAGE)
    if bios.begins is not None and len(bios.begins.within):
        first = np.minimum(bios.first, len(bios.begins.within) - 1)  # a flush has no page
        inside = bios.begins.within[first]
    # Bios that meet inside a page stay apart, because each touches that page; the simulation merges
    # them.
    found[1:] &= inside[1:] == 0
    alike = (bios.tenant, bios.reason, bios.phase, bios.waited)
    for values in (last.row, chain, bios.device, bios.write, *alike):
        found[1:] &= values[1:] == values[:-1]
    found[1:] &= ~(bios.flush[1:] | bios.fua[1:] | bios.flush[:-1] | bios.fua[:-1])
    return found


def _ahead(bios: Bios, begins: PageBegins, leads: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Returns the sectors before each page access of the bio that it became a part of."""
    lead = np.maximum.accumulate(np.where(leads, np.arange(len(bios)), 0))
    before = (bios.sector - bios.sector[lead]).astype(np.int32)
    return begins.ahead + np.repeat(before, bios.pages)


def issuers(trace: Trace, bios: Bios) -> NDArray[np.int64]:
    """Returns the process that waits for each bio, or that submitted it."""
    chain = bios.pid.copy()
    names = bios.names["reason"]
    if _JOURNAL not in names or "syscalls" not in trace.tables:
        return chain
    stalls = STALLS.frame(trace, "kind = 'sync' AND dur_ns > 0", ["ts", "dur_ns", "pid"])
    stalls = stalls.sort_values("ts", kind="stable")
    begin = stalls["ts"].to_numpy(np.int64)
    end = begin + stalls["dur_ns"].to_numpy(np.int64)
    pid = stalls["pid"].fillna(-1).to_numpy(np.int64)
    by_end = np.argsort(end, kind="stable")
    journal = np.flatnonzero(bios.reason == names.index(_JOURNAL))
    begun = np.searchsorted(begin, bios.ts[journal], "right")
    ended = np.searchsorted(end[by_end], bios.ts[journal], "left")
    # The sum of the pids of calls under way is the pid of the call if only one is under way.
    so_far = np.concatenate(([0], np.cumsum(pid)))
    gone = np.concatenate(([0], np.cumsum(pid[by_end])))
    alone = begun - ended == 1
    chain[journal[alone]] = (so_far[begun] - gone[ended])[alone]
    return chain
