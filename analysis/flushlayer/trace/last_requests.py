"""The last request of each bio: the bio is complete when that request is.

The block layer merges bios into one request, and splits a bio that is too long for the device into
several. No event names the bios of a request, but its place and its time tell them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.timed.state import FLUSH, READ, WRITE
from tracer.analysis.flushlayer.trace.accesses import Bios
from tracer.analysis.views.covering import Ints, Sectors, last_cover, stops
from tracer.analysis.views.disks.requests import OPERATION, REQUESTS
from tracer.analysis.views.disks.volumes import make_partitions
from tracer.store.trace import Trace

_LATEST = (1 << 63) - 1
_REQUESTS = f"""
SELECT r.row, r.dev AS disk, coalesce(r.sector, 0::UBIGINT) AS sector,
    coalesce(r.nr_sector, 0) AS sectors, r.queue_ns IS NOT NULL AS queued,
    coalesce(r.queue_ns, 0) AS queue_ns, coalesce(r.complete_ns, -1) AS done_ns,
    CASE r.operation WHEN 'write' THEN {WRITE} WHEN 'read' THEN {READ} ELSE {FLUSH} END
        AS operation, false AS ending
FROM requests r
WHERE r.operation = 'flush' OR (r.operation IN ('write', 'read') AND r.sector IS NOT NULL
    AND r.nr_sector > 0)
UNION ALL
-- The final completion of a write that is followed by a flush.
SELECT b.row, coalesce(p.disk, b.dev), b.sector, 0, false, 0, b.ts, {WRITE}, true
FROM block_rows b LEFT JOIN partitions p ON b.dev = p.dev
WHERE b.event = 'complete' AND b.sector IS NOT NULL AND coalesce(b.nr_sector, 0) <= 0
    AND {OPERATION} = 'write'
ORDER BY row
"""


class LastRequests(NamedTuple):
    """The last request of each bio; arrays of one length."""

    done: Ints
    """Time in ns of its completion, and so of the bio's; -1: not known."""
    row: Ints
    """Row of its issue in the table block; -1: the completion is not known."""


def last_requests(trace: Trace, bios: Bios) -> LastRequests:
    """Returns the last request of each bio.

    Requests and their completions are those of the view `requests`. A request has the data of one
    bio alone if it begins where the bio does, has the bio's queue time there, and is not longer
    than the bio. Each other sector of a bio (of one that was merged with others, or in the rest of
    one that was split) is in the first request of its device and operation that covers it and was
    issued after the bio was queued; those that have the data of another of these bios alone are
    passed over. If a sector is in no request, or the completion of one of the requests is not
    known, that of the bio is not either.

    A bio without pages belongs to the next flush of its device. If the kernel follows a FUA write
    with a flush of its own, the bio is complete when the kernel ends it: at a completion without
    length at one of its sectors.
    """
    REQUESTS.make(trace)
    make_partitions(trace)
    disks = dict(trace.rows("SELECT dev, disk FROM partitions"))
    numbers: dict[str, int] = {}
    of_device = [
        numbers.setdefault(disks.get(name, name), len(numbers)) for name in bios.names["device"]
    ]
    disk = np.array(of_device, np.int64)[bios.device]
    operation = np.where(bios.pages == 0, FLUSH, np.where(bios.write, WRITE, READ))
    rows = trace.arrow(_REQUESTS)
    codes, names = pd.factorize(rows["disk"].to_pandas())
    # A request to no device has the code -1.
    told_disk = np.array([*(numbers.get(name, -1) for name in names), -1], np.int64)[codes]
    told = rows.drop_columns(["disk"]).to_pandas()
    told_operation = told["operation"].to_numpy()
    found = LastRequests(*(np.full(len(bios), -1, np.int64) for _ in range(2)))
    for number in range(len(numbers)):
        for kind in (WRITE, READ, FLUSH):
            mine = np.flatnonzero((disk == number) & (operation == kind))
            if not len(mine):
                continue
            mine = mine[np.argsort(bios.row[mine], kind="stable")]
            here = told[(told_disk == number) & (told_operation == kind)]
            requests = here[~here["ending"]].reset_index(drop=True)
            if kind == FLUSH:
                last = np.searchsorted(requests["row"].to_numpy(), bios.row[mine])
            else:
                last = _last(bios, mine, requests)
            known = last < len(requests)
            of, last = mine[known], last[known]
            found.done[of] = requests["done_ns"].to_numpy()[last]
            found.row[of] = requests["row"].to_numpy()[last]
            if here["ending"].any():
                ended = _ended(bios, mine, here[here["ending"]])[known]
                found.done[of] = np.where(
                    bios.fua[of] & (found.done[of] >= 0),
                    np.maximum(found.done[of], ended),
                    found.done[of],
                )
    found.row[found.done < 0] = -1
    return found


def _last(bios: Bios, mine: Ints, requests: pd.DataFrame) -> Ints:
    """Returns the number of the last request of each bio; the number of all: it is not known.

    `mine` are bios of one device and operation, `requests` its requests, both in their order.
    """
    if not len(requests):
        return np.zeros(len(mine), np.int64)
    begin, stop = _places(bios, mine)
    first = requests["sector"].to_numpy(np.uint64)
    end = stops(first, requests["sectors"].to_numpy(np.int64))
    done = requests["done_ns"].to_numpy(np.int64)
    by_end = np.argsort(np.where(done < 0, _LATEST, done), kind="stable")
    not_known = len(requests)
    rank = np.empty(not_known, np.int64)
    rank[by_end] = np.arange(not_known)
    rank[done < 0] = not_known
    issued = requests["row"].to_numpy(np.int64)
    own = _own(begin, bios.ts[mine], requests)
    # It may have bios that were merged into it, or be of an earlier bio of this time.
    own[(own >= 0) & ((end[own] > stop) | (issued[own] < bios.row[mine]))] = -1
    has_own = own >= 0
    found = np.where(has_own, rank[own], -1)
    begin = np.where(has_own, end[own], begin)
    rest = np.flatnonzero(~has_own | (begin < stop))
    of_several = np.ones(len(requests), np.bool_)
    of_several[own[has_own]] = False
    others = last_cover(
        begin[rest],
        stop[rest],
        np.searchsorted(bios.row[mine[rest]], issued[of_several]),
        first[of_several],
        end[of_several],
        rank[of_several],
        not_known,
    )
    found[rest] = np.maximum(found[rest], others)
    last: Ints = np.append(by_end, not_known)[found]
    return last


def _own(begin: Sectors, ts: Ints, requests: pd.DataFrame) -> Ints:
    """Returns the number of the request at whose first sector each bio was queued; -1: none."""
    place = ["sector", "queue_ns"]
    ours = pd.DataFrame({"sector": begin, "queue_ns": ts})
    theirs = requests.loc[requests["queued"], place]
    # Of several bios at one place and time, the latest are taken, as in the view.
    ours, theirs = (
        frame.assign(nth=frame.groupby(place, sort=False).cumcount(ascending=False))
        for frame in (ours, theirs)
    )
    theirs["number"] = theirs.index
    found = ours.merge(theirs, "left", [*place, "nth"])["number"].fillna(-1)
    own: Ints = found.to_numpy().astype(np.int64)
    return own


def _ended(bios: Bios, mine: Ints, endings: pd.DataFrame) -> Ints:
    """Returns the time in ns of the last completion without length in each bio; -1: none.

    They are those that come before another bio of their sector.
    """
    sector = endings["sector"].to_numpy(np.uint64)
    return last_cover(
        *_places(bios, mine),
        np.searchsorted(bios.row[mine], endings["row"].to_numpy(np.int64)),
        sector,
        stops(sector, np.ones(len(sector), np.int64)),
        endings["done_ns"].to_numpy(np.int64, copy=True),
        -1,
        once=True,
    )


def _places(bios: Bios, mine: NDArray[np.int64]) -> tuple[Sectors, Sectors]:
    """Returns the first sector of each bio, and the one behind its last."""
    return bios.sector[mine], stops(bios.sector[mine], bios.sectors[mine])
