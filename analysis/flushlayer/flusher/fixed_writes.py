"""The recorded events of write-back that no knob moves, and the flusher's clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tracer.analysis.flushlayer.flusher import paired
from tracer.analysis.flushlayer.flusher.dirtying import Dirtyings, dirtyings
from tracer.analysis.flushlayer.flusher.lives import FILE, in_life
from tracer.analysis.flushlayer.trace.page_count import MODEL_PAGE, pages_of_kernel
from tracer.analysis.views.disks.volumes import of_files
from tracer.store.trace import Trace

LAST_PAGE = paired.NOWHERE << 1
"""An index after every page of a file, also after pages of unknown place."""


@dataclass(frozen=True)
class Recorded:
    """Events that happen at their recorded time, at any setting of the knobs.

    `synced`: a task wrote a file's pages (fsync, msync, O_SYNC, a close): ts, inode (row of
    `Dirtyings.inodes`), first and last page, reason. `synced_devices`: sync, and other requests
    that the flusher write all pages: ts, dev, reason. `freed`: the end of an inode and its pages:
    ts, inode. `first_look`: the time in ns at which each device's flusher first looked for old
    inodes. `tick`: the length of a jiffies tick and the time at which jiffies were 0 (ns); None:
    not recorded.
    """

    synced: pd.DataFrame
    synced_devices: pd.DataFrame
    freed: pd.DataFrame
    first_look: dict[str, int]
    tick: tuple[int, int] | None = None


# If a page is dirty, a whole-file fsync of ext4 is followed by a write-out with the requested
# range. If no page is dirty, only the call is recorded.
_SYNCED = f"""
WITH flushers AS (SELECT DISTINCT tid FROM writeback WHERE event = 'start'),
journals AS (SELECT DISTINCT tid FROM processes WHERE role = 'journal'),
steps AS (
    SELECT ts, tid, event, disk AS dev, ino, "offset", "last", sync_mode,
        lead(event) OVER by_thread AS after, lead(ino) OVER by_thread AS whose
    FROM {of_files("file_writes_rows")}
    WHERE event IN ('writepages_start', 'fsync_start', 'fsync', 'fsync_end')
    WINDOW by_thread AS (PARTITION BY tid ORDER BY ts, row)
), synced AS (
    SELECT ts, dev, ino,
        CASE WHEN event = 'writepages_start' THEN "offset" // $bytes * $unit ELSE 0 END AS first,
        CASE WHEN event = 'writepages_start' AND "last" < 9007199254740992
            THEN ("last" // $bytes + 1) * $unit - 1 ELSE $last END AS last,
        CASE WHEN tid IN (SELECT tid FROM journals) THEN 'journal'
            WHEN event != 'writepages_start' OR sync_mode = 1 THEN 'fsync' ELSE 'other' END
            AS reason
    FROM steps ANTI JOIN flushers USING (tid)
    WHERE ino IS NOT NULL AND event != 'fsync_end'
        AND NOT (event = 'fsync_start' AND after IS NOT DISTINCT FROM 'writepages_start'
            AND whose IS NOT DISTINCT FROM ino)
        AND coalesce("offset", 0) >= 0 AND coalesce("last", 0) >= 0
)
SELECT * EXCLUDE (born_ns) FROM {in_life("synced")} ORDER BY ts
"""

# sync first wakes all flushers (wakeup_flusher_threads()), which only their start and written
# events show. Then it queues one work item for each device.
_SYNCED_DEVICES = """
WITH steps AS (
    SELECT ts, bdi, event, reason, lag(event) OVER by_thread AS before,
        lag(reason) OVER by_thread AS why, lag(ts) OVER by_thread AS last_ts
    FROM writeback_rows WHERE event IN ('exec', 'start', 'written')
    WINDOW by_thread AS (PARTITION BY tid, bdi ORDER BY ts, row)
)
SELECT DISTINCT ts, bdi AS dev, reason FROM steps
WHERE reason = 'sync' AND bdi IS NOT NULL AND (event = 'exec' OR (event = 'start'
    AND NOT (before IS NOT DISTINCT FROM 'written' AND why IS NOT DISTINCT FROM 'sync'
        -- Events of one work item follow each other at once.
        AND ts < last_ts + 10000000)
    AND before IS DISTINCT FROM 'exec'))
UNION
SELECT ts, dev, 'sync' FROM (SELECT ts FROM syscalls WHERE name = 'sync'), written_devices
ORDER BY ts
"""

_FREED = "SELECT ts, dev, ino, life FROM ended ORDER BY ts"

_FIRST_LOOK = """
SELECT bdi AS dev, min(ts) AS ts FROM writeback
WHERE event = 'start' AND reason = 'periodic' AND bdi IS NOT NULL GROUP BY 1
"""


# Tick length, from the inode whose dirtied_when is furthest from the jiffies of the manifest.
_TICK = """
SELECT (ts - age - $at) / (dirtied_when - $jiffies) AS tick FROM inode_writeback
WHERE age > 0 AND abs(dirtied_when - $jiffies) BETWEEN 1 AND 1000000000000
    AND ts BETWEEN 0 AND 1000000000000000000 AND age < 1000000000000000000
ORDER BY abs(dirtied_when - $jiffies) DESC LIMIT 1
"""
_USUAL_HZ = (24, 48, 64, 100, 128, 250, 256, 300, 1000, 1024, 1200)
"""Tick rates of kernels: kernel/Kconfig.hz and the architectures' own."""


def _tick(trace: Trace) -> tuple[int, int] | None:
    known = trace.manifest["clock"].get("jiffies")
    if known is None:
        return None
    jiffies, at = known
    if not 0 <= jiffies < 1 << 52 or not 0 <= at < 1 << 60:
        return None
    found = trace.sql(_TICK.replace("$at", str(at)).replace("$jiffies", str(jiffies)))
    for hz in _USUAL_HZ:
        tick = 1_000_000_000 // hz
        if len(found) and abs(found["tick"].iloc[0] - tick) < tick / 100:
            zero = at - jiffies * tick
            return (tick, zero) if abs(zero) < 1 << 60 else None
    return None


# Syncs of a whole device whose end was recorded. Such a sync writes every page that was dirty
# before it began.
_SYNCS_ENDED = """
WITH steps AS (
    SELECT ts, bdi, event, reason, sync_mode, lead(event) OVER by_thread AS after,
        lead(reason) OVER by_thread AS why, lead(sync_mode) OVER by_thread AS mode
    FROM writeback_rows WHERE event IN ('exec', 'start', 'written')
    WINDOW by_thread AS (PARTITION BY tid, bdi ORDER BY ts, row)
)
SELECT e.bdi AS dev, e.ts AS begun, min(w.ts) AS ended FROM steps e JOIN steps w
    ON e.bdi = w.bdi AND w.ts >= e.ts AND w.event = 'written' AND w.reason = 'sync'
        AND w.sync_mode = 1
        AND NOT (w.after IS NOT DISTINCT FROM 'start' AND w.why IS NOT DISTINCT FROM 'sync'
            AND w.mode IS NOT DISTINCT FROM 1)
WHERE e.event = 'exec' AND e.reason = 'sync' AND e.sync_mode = 1
    AND NOT EXISTS (SELECT 1 FROM shared_disks s WHERE s.disk = e.bdi)
GROUP BY ALL ORDER BY 2
"""


def _gone_by_syncs(found: Dirtyings, synced: pd.DataFrame, ended: pd.DataFrame) -> pd.DataFrame:
    """Returns the pieces; marks those that a sync of their whole device did not write as dropped,
    at the first event of that sync."""
    pieces = found.pieces.copy()
    device = found.inodes["dev"].to_numpy(str)[pieces["inode"]]
    disks_own = found.inodes["device_page"].to_numpy()[pieces["inode"]] >= 0
    unwritten = pieces["how"].isin((paired.UNWRITTEN, paired.DROPPED)).to_numpy() & ~disks_own
    for dev, syncs in ended.groupby("dev"):
        mine = np.flatnonzero(unwritten & (device == dev))
        begun, end = syncs["begun"].to_numpy(np.int64), syncs["ended"].to_numpy(np.int64)
        signs = np.sort(synced["ts"][synced["dev"] == dev].to_numpy(np.int64))
        ts, until = pieces["ts"].to_numpy(np.int64)[mine], pieces["until"].to_numpy(np.int64)[mine]
        following = np.searchsorted(begun, ts, side="right")
        there = following < len(begun)
        following = np.minimum(following, len(begun) - 1)
        # The piece was dropped during the sync or later, or the sync ended and did not write it.
        found_gone = (pieces["how"].to_numpy()[mine] == paired.DROPPED) & (
            begun[following] <= until
        )
        gone = there & (found_gone | (end[following] < until))
        sign = np.searchsorted(signs, ts[gone], side="right")
        rows = pieces.index[mine[gone]]
        pieces.loc[rows, "until"] = signs[np.minimum(sign, len(signs) - 1)]
        pieces.loc[rows, "how"] = np.int8(paired.DROPPED)
    return pieces


def prepared(trace: Trace) -> tuple[Dirtyings, Recorded]:
    """Returns the input of `regenerate`: a trace's dirtyings, and its events that no knob moves."""
    found = dirtyings(trace)
    numbers = found.inodes[[*FILE]].reset_index(names="inode")

    def of_known(query: str) -> pd.DataFrame:
        rows = trace.sql(query)
        rows["dev"] = rows["dev"].astype(str)
        return rows.merge(numbers, on=[*FILE], how="inner")

    unit = pages_of_kernel(trace)
    query = _SYNCED.replace("$last", str(LAST_PAGE)).replace("$unit", str(unit))
    synced = of_known(query.replace("$bytes", str(unit * MODEL_PAGE)))
    looks = trace.sql(_FIRST_LOOK)
    devices = trace.sql(_SYNCED_DEVICES)
    devices["dev"] = devices["dev"].astype(str)
    pieces = _gone_by_syncs(found, devices, trace.sql(_SYNCS_ENDED))
    return replace(found, pieces=pieces), Recorded(
        synced[["ts", "inode", "first", "last", "reason"]].astype(
            {"first": np.int64, "last": np.int64}
        ),
        devices,
        of_known(_FREED)[["ts", "inode"]],
        {str(dev): int(ts) for dev, ts in zip(looks["dev"], looks["ts"], strict=True)},
        _tick(trace),
    )
