"""A kernel in plain Python in which warm pages stay, with folios of several pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.oracles.called_jobs import NO_LIMIT, JobCall
from tests.oracles.two_lists import FAULT, MOST_AT_ONCE, READ, REMOVAL, UPDATE_NS, WRITE
from tests.oracles.warm_caches import Limits
from tests.oracles.warm_pages import SIZES, Page
from tests.support import slow_page_cache as slow
from tests.support.slow_read_ahead import ReadAhead, Reader, largest


def folio_reads(
    calls: Iterable[JobCall],
    pages: int,
    below: Limits,
    warm: Iterable[Page] = (),
    ahead: int = 0,
    clock: int | None = 0,
) -> Counter[tuple[str | None, int | None]]:
    """Pages that it reads for each epoch of the targets; see `kernel_reads`.

    A removal takes all of a folio.
    """
    rooms = [pages] * below.limits[-1] + [NO_LIMIT]
    cache = slow.SlowCache(rooms, True, clock is None, below.limits)
    numbers = {file: number for number, file in enumerate(SIZES)}
    for file, index in sorted(warm):
        cache.add(numbers[file], index, 0, len(below.limits) - 1, read=False)
    readers: dict[object, Reader] = {}
    read: Counter[tuple[str | None, int | None]] = Counter()
    due = None
    for call in calls:
        due = call.ts + (clock or 0) if due is None else due
        while call.ts >= due:
            due += UPDATE_NS
            for limit in cache.limits:
                cache.publish(limit)
        number, cache.read = numbers[call.file], 0
        used = slow.File(cache, number, SIZES[call.file], below.tenants[call.target])
        reader = readers.setdefault(call.reader, Reader())
        reads = ReadAhead(used, reader, ahead, MOST_AT_ONCE, True)
        if call.kind == READ:
            slow.read_run(used, reads, call.first, call.pages)
        elif call.kind == FAULT:
            slow.fault_run(used, reads, call.first, call.pages)
        elif call.kind == WRITE:
            slow.write_run(used, call.first, call.pages, True, largest(4)[1])
        elif call.kind == REMOVAL:
            cache.remove(number, call.first)
        read[call.target, call.epoch] += cache.read
    return read
