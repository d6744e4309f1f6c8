"""The owner of a write bio: the targets, others, both, or not known.

The dirtiers decide (`dirtiers`). Bios without a dirtier, such as the journal's and metadata, which
belong to everybody, are inferred. Metadata that a process submits is its own. Metadata that a
kernel thread submits during a target's call that waits for the disk is the target's. A direct
write, an fsync, or a write-out in a call such as close, without a dirtier, belongs to the calling
process. The owner of all other bios is not known.
"""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.calls_by_kind import ENDINGS
from tracer.analysis.views.threads import owns, whole_machine
from tracer.probes.schema import Column, Type
from tracer.store.trace import Trace

MINE = ("target", "shared")
"""Values of the column `whose` that mean a target."""

AS_ASKED = "as asked for"
"""The reason of a user who asks for all writers."""

COLUMN = Column(
    "whose",
    Type.TEXT,
    "target: only targets' processes dirtied it; shared: targets' and others; other: only others; "
    "null: not known. Inferred from the submitter or a sync if `dirtier` is null",
)

# Calls that sync, and other calls in which a file system syncs (a write to an O_SYNC file).
_SYNCING = f"""
CREATE OR REPLACE TEMP TABLE syncing AS
WITH calls AS (
    SELECT tid, ts, least(returned, {LATEST} - 1) AS ended FROM sync_calls
    UNION ALL
    SELECT f.tid, c.ts, least(c.returned, {LATEST} - 1)
    FROM (
        SELECT f.tid, f.ts, o.begun FROM file_writes f LEFT JOIN threads o ON {owns("o", "f")}
        WHERE event IN ('fsync', 'fsync_start')
    ) f ASOF JOIN calls_of_fsyncs c ON f.tid = c.tid AND f.ts >= c.ts
    -- A call of an earlier thread of the same number is over.
    WHERE f.ts <= c.returned AND c.ts >= coalesce(f.begun, c.ts)
), mine AS (
    SELECT ts, ended FROM calls c
    SEMI JOIN (SELECT * FROM threads WHERE target IS NOT NULL) o ON {owns("o", "c")}
), edges AS (
    SELECT ts, 1 AS change FROM mine UNION ALL SELECT ended + 1, -1 FROM mine
)
SELECT ts, sum(sum(change)) OVER (ORDER BY ts) AS calls FROM edges GROUP BY ts
"""

_UNDIRTIED = f"""
CREATE OR REPLACE TEMP TABLE undirtied AS
WITH asked AS (
    SELECT r.id, r.ts, r.metadata OR r.reason = 'journal' AS of_all, r.reason, r.call, t.tid,
        t.target, coalesce(t.kernel, false) AS kernel
    FROM submissions r ANTI JOIN dirtied_by d USING (id)
    LEFT JOIN threads t ON {owns("t", "r", "by_tid", "at_ns")}
), meanwhile AS (
    SELECT a.id, s.calls FROM (SELECT id, ts FROM asked WHERE of_all AND kernel) a
    ASOF JOIN syncing s ON a.ts >= s.ts
)
SELECT id, CASE
    WHEN tid IS NULL THEN NULL
    WHEN kernel THEN CASE WHEN calls > 0 THEN 'target' END
    WHEN of_all OR reason IN ('direct', 'fsync') OR call IN {ENDINGS}
        THEN CASE WHEN target IS NULL THEN 'other' ELSE 'target' END
    END AS whose
FROM asked LEFT JOIN meanwhile USING (id)
"""


def make_undirtied(trace: Trace) -> None:
    """Makes the table `undirtied`: id and whose of each bio of `submissions` without a dirtier.

    Needs the tables `submissions`, `threads`, `dirtied_by`, `calls_of_fsyncs`, `sync_calls`, and
    file_writes, which may be empty.
    """
    trace.create(_SYNCING, empty=trace.is_empty("syscalls"))
    trace.execute(_UNDIRTIED)
    trace.drop("syncing")


def everybody_because(trace: Trace, all_writers: bool) -> str:
    """Returns the reason to take everybody's pages of a trace; empty: take the targets' alone."""
    if not trace.manifest["targets"]:
        return "the trace names no target"
    if whole_machine(trace):
        return "the whole machine was recorded"
    if all_writers:
        return AS_ASKED
    if not {"dirty", "processes"} <= set(trace.tables):
        return "without the probe dirty, no event names the process that dirtied a page"
    return ""
