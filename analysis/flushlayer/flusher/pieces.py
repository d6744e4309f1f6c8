"""The pieces of files that were dirtied at one time: the arrays of the pairing, and its result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher import paired, pairing


def paired_pieces(
    cached: pd.DataFrame,
    folios: pd.DataFrame,
    visits: pd.DataFrame,
    codes: list[NDArray[np.int32]],
    inodes: pd.DataFrame,
    told: NDArray[np.int64],
    start_ns: int,
    end_ns: int,
    unit: int,
) -> pd.DataFrame:
    """Returns the pieces of all files, as `Dirtyings` has them.

    `cached`, `folios` and `visits` are rows of the queries of `dirtying.py`. `codes` has the file
    (row of `inodes`) of each row of bios, folios, marks and visits. `told` and `unit`: see
    `pairing.pair`.
    """
    of_folio = pd.DataFrame({"inode": codes[1], "index": folios["index"].to_numpy(np.int64)})
    known = of_folio.drop_duplicates().sort_values(["inode", "index"], ignore_index=True)
    number = of_folio.merge(known.reset_index(names="number"), how="left")["number"]
    index = known["index"].to_numpy(np.int64)
    of_inode = known["inode"].to_numpy(np.int32)
    first_folio = np.searchsorted(of_inode, np.arange(len(inodes) + 1)).astype(np.int64)
    first_block, base, blocks = _dense(cached)
    events = _in_order(cached, folios, visits, codes, number.to_numpy(np.int64), first_block)
    rows = pairing.pair(
        events, first_folio, index, paired.folio_room(index, unit),
        base(np.arange(blocks)), inodes["device_page"].to_numpy(), told, start_ns, end_ns, unit,
    )  # fmt: skip
    block = rows[:, paired.BLOCK]
    page = np.full(len(rows), -1, np.int64)
    there = block >= 0
    page[there] = base(block[there])
    return pd.DataFrame(
        {
            "ts": rows[:, paired.TS],
            "inode": rows[:, paired.INODE].astype(np.int32),
            "index": rows[:, paired.INDEX],
            "pages": rows[:, paired.PAGES],
            "dirtier": rows[:, paired.WHO],
            "page": page,
            "until": rows[:, paired.UNTIL],
            "how": rows[:, paired.KIND].astype(np.int8),
        }
    )


def _dense(cached: pd.DataFrame) -> tuple[NDArray[np.int64], Any, int]:
    """Returns dense numbers for all written blocks: each bio's first, the way back, and the count.

    Consecutive blocks of a bio have consecutive numbers.
    """
    devices = pd.factorize(cached["dev"].astype(str))[0].astype(np.int64)
    first = cached["page"].to_numpy(np.int64)
    pages = cached["pages"].to_numpy(np.int64)
    order = np.lexsort((first, devices))
    device, begin, end = devices[order], first[order], (first + pages)[order]
    # Overlapping bios form a stretch of blocks; a bio that no earlier one reaches begins a new one.
    reach = pd.Series(end).groupby(device).cummax().to_numpy(np.int64)
    fresh = np.ones(len(order), bool)
    fresh[1:] = (device[1:] != device[:-1]) | (begin[1:] > reach[:-1])
    stretch = np.cumsum(fresh) - 1
    starts = begin[fresh]
    ends = reach[np.append(np.flatnonzero(fresh)[1:] - 1, len(order) - 1)] if len(order) else begin
    offset = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
    dense = np.empty(len(order), np.int64)
    dense[order] = offset[stretch] + begin - starts[stretch]

    def back(block: NDArray[np.int64]) -> NDArray[np.int64]:
        at = np.searchsorted(offset, block, side="right") - 1
        found: NDArray[np.int64] = starts[at] + block - offset[at]
        return found

    return dense, back, int(offset[-1])


def _in_order(
    cached: pd.DataFrame,
    folios: pd.DataFrame,
    visits: pd.DataFrame,
    codes: list[NDArray[np.int32]],
    number: NDArray[np.int64],
    first_block: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """Returns the events of all inodes, one inode after the other, each in order of time."""
    sizes = (len(folios), len(cached), len(visits))

    def columns(
        name: str, folio: Any, bio: Any, visit: Any, dtype: Any = np.int64
    ) -> tuple[str, NDArray[Any]]:
        parts = [
            np.broadcast_to(np.asarray(part, dtype), size)
            for part, size in zip((folio, bio, visit), sizes, strict=True)
        ]
        return name, np.concatenate(parts)

    events = dict(
        [
            columns("inode", codes[1], codes[0], codes[3], np.int32),
            columns("kind", pairing.DIRTIED, pairing.WRITTEN, visits["kind"], np.int8),
            columns("ts", folios["ts"], cached["ts"], visits["ts"]),
            columns("x", number, first_block, -1),
            columns("pages", 0, cached["pages"], 0),
            columns("first", 0, np.cumsum(cached["pages"]) - cached["pages"], 0),
            columns("who", folios["who"], -1, -1),
            columns("started", 0, cached["started"], visits["started"]),
            columns("since", paired.NEVER, cached["since"], paired.NEVER),
        ]
    )
    order = np.lexsort((events["kind"], events["ts"], events["inode"]))
    return {name: values[order] for name, values in events.items()}
