"""Writes past a layer that replace only a part of what the layer has to destage of a page.

The dirty part of a page is one range, from its first dirty sector to the last, as in the model
`timed`. The models without time do not know when a page left the layer, so here no page leaves it
before a write replaces its whole dirty part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.trace.accesses import Bios
from tracer.analysis.views.writing.submissions import SECTORS_PER_PAGE
from tracer.probes.compiled import compiled, read_only

_FURTHEST = np.uint64(1 << 54)
"""A sector after the last one of any device: a trace may name any."""


def leaves_part(bios: Bios, page: NDArray[np.int32], unique: int) -> NDArray[np.bool_]:
    """Returns whether each access leaves a part of its page to be destaged, if it is written past
    the layer.

    Writes that somebody waits for go into the layer, other writes past it. `page` and `unique` are
    those of `Accesses`.
    """
    found = np.zeros(len(page), np.bool_)
    whole = bios.sectors % SECTORS_PER_PAGE == 0
    whole &= bios.sector % np.uint64(SECTORS_PER_PAGE) == 0
    if bios.begins is None and (whole | ~bios.write).all():
        return found
    ahead, within = np.zeros(0, np.int32), np.zeros(0, np.uint8)
    if bios.begins is not None:
        ahead, within = bios.begins.ahead, bios.begins.within
    sector = np.minimum(bios.sector, _FURTHEST).astype(np.int64)
    given = (
        bios.write, bios.waited, bios.device, sector, bios.sectors, bios.first, bios.pages, ahead,
        within, page,
    )  # fmt: skip
    _mark(tuple(map(read_only, given)), unique, found)
    return found


@compiled
def _mark(given: Any, unique: int, found: Any) -> None:
    write, waited, device, sector, sectors, first, pages, ahead, within, page = given
    # The place of each page on its disk, and its dirty sectors low .. high - 1 from there on.
    disk = np.zeros(unique, np.int16)
    place = np.zeros(unique, np.int64)
    low, high = np.zeros(unique, np.int64), np.zeros(unique, np.int64)
    told = len(ahead) > 0
    for m in range(len(first)):
        if not write[m]:
            continue
        stop = sector[m] + sectors[m]
        for i in range(first[m] + pages[m] - 1, first[m] - 1, -1):
            begin = sector[m]
            if told:
                begin += ahead[i]
                base = begin - np.int64(within[i])
            else:
                base = (sector[m] // SECTORS_PER_PAGE + i - first[m]) * SECTORS_PER_PAGE
                begin = max(begin, base)
            p = page[i]
            one, end = begin - base, stop - base
            stop = begin
            if waited[m]:
                if low[p] < high[p] and place[p] == base and disk[p] == device[m]:
                    one, end = min(one, low[p]), max(end, high[p])
                low[p], high[p], place[p], disk[p] = one, end, base, device[m]
            elif one <= low[p] and end >= high[p]:
                low[p] = high[p] = 0
            elif low[p] < high[p]:
                found[i] = True
                if one <= low[p] < end:
                    low[p] = end
                elif one < high[p] <= end:
                    high[p] = one
