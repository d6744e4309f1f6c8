"""The page cache: the pages of files that are read, mapped, brought in and taken out.

- access: a call reads pages that are in the cache by now. A call logs one event for each batch of
  at most 31 folios, each from the batch's first page to the last page that the call wants, which
  may lie beyond the end of the file.
- fault: a thread touches a page of a mapped file that is not in its page tables.
- map: the kernel maps the cached pages around such a fault, before it faults for the next one.
- add, delete: a folio comes into the cache, or leaves it. Pages that a call lacks, and those that
  are read ahead, are added by its thread before its access, but after its fault.
- sync_read_ahead: a call or a fault lacks the page `index` and asks for `pages`.
- async_read_ahead: it has reached the mark at which the next pages are read ahead.
- read_ahead: the kernel is about to add `pages` pages from `index` on, and to read them; those that
  are cached already are left as they are.

Kernel: include/trace/events/filemap.h, include/trace/events/readahead.h, filemap_get_pages() in
mm/filemap.c. Older kernels lack some of the events: access, fault and map are of 6.10, read-ahead
of 6.18.
"""

from __future__ import annotations

from typing import Any

from tracer.probes.schema import (
    CPU,
    EVENT,
    INO,
    PID,
    TID,
    TS,
    AssemblyContext,
    Column,
    Event,
    Probe,
    Scope,
    Table,
    Type,
    device,
    number,
)

ACCESSES = "filemap:mm_filemap_get_pages"
"""The event without which accesses are inferred from calls."""
ACCESS, FAULT, MAP = "access", "fault", "map"
ADD, DELETE = "add", "delete"
SYNC, ASYNC, AHEAD = "sync_read_ahead", "async_read_ahead", "read_ahead"

TABLE = Table(
    "page_cache",
    "One row per event of the page cache: pages of a file that are used, brought in or taken out.",
    (
        TS,
        CPU,
        PID,
        TID,
        EVENT,
        Column("dev", Type.TEXT, "file system, MAJOR:MINOR"),
        INO,
        Column("index", Type.UINT64, "first page in the file", "pages"),
        Column(
            "pages",
            Type.INT64,
            "number of pages; access: up to the last one that the call wants, so that the batches "
            "of one call overlap; sync_read_ahead, async_read_ahead: those that it lacks",
            "pages",
        ),
        Column(
            "continues",
            Type.BOOL,
            "access: the thread has made no other call since its access before; null: its calls "
            "are not recorded",
        ),
    ),
    example="SELECT dev, ino, event, count(*), sum(pages) FROM page_cache GROUP BY ALL ORDER BY 5",
    option="-e default,page_cache",
)

_FOLIO = {"dev": device("s_dev"), "ino": number("i_ino"), "index": number("index")}


def _assembler(context: AssemblyContext) -> Any:
    from tracer.probes.rows.page_cache_rows import PageCacheRows

    return PageCacheRows(context)


PROBE = Probe(
    "page_cache",
    "pages of files that are read, mapped, cached, read ahead and evicted; machine-wide",
    TABLE,
    (
        Event(ACCESSES, ACCESS, _FOLIO, reads=("last_index",)),
        Event("filemap:mm_filemap_map_pages", MAP, _FOLIO, reads=("last_index",)),
        Event("filemap:mm_filemap_fault", FAULT, _FOLIO),
        Event("filemap:mm_filemap_add_to_page_cache", ADD, _FOLIO, reads=("order",)),
        Event("filemap:mm_filemap_delete_from_page_cache", DELETE, _FOLIO, reads=("order",)),
        Event("readahead:page_cache_sync_ra", SYNC, _FOLIO, reads=("req_count",)),
        Event("readahead:page_cache_async_ra", ASYNC, _FOLIO, reads=("req_count",)),
        Event("readahead:page_cache_ra_unbounded", AHEAD, _FOLIO, reads=("nr_to_read",)),
        Event("readahead:page_cache_ra_order", AHEAD, _FOLIO, reads=("size",)),
    ),
    Scope.MACHINE,
    rate="one per read call, per 16 pages mapped, and per folio that is cached or evicted",
    assembler=_assembler,
    by_default=False,
    optional=True,
)
