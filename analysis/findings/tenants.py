"""Findings about targets that wait for each other's writes."""

from __future__ import annotations

from tracer.analysis.findings.finding import (
    AT_LEAST,
    EXACT,
    INFERRED,
    Finding,
    ask,
    finding,
    of_events,
    percent,
    size,
)
from tracer.analysis.findings.finding import name as named
from tracer.analysis.findings.window import Scope, Window, whole
from tracer.analysis.views.calls_by_kind import SYNC
from tracer.analysis.views.threads import make_threads, owns
from tracer.analysis.views.writing.flushes import flushes
from tracer.probes.events.block import SECTOR_BYTES
from tracer.store.trace import Trace

_BOTH = (Scope.TARGET, Scope.MACHINE)
_JOBS = "(SELECT * FROM threads WHERE job AND target IS NOT NULL)"


def tenants(trace: Trace) -> list[Finding]:
    """Returns the share of data written for one target's fsync or sync that another one dirtied.

    Data are written for a target if one of its processes writes them out in such a call. They are
    also written for each target that is in such a call (an inference) if a kernel thread writes
    them out for a sync or a journal commit. The dirtier is that of the inode, as in the view
    `flushes`. If several targets dirtied it, there is none, and all shares are lower bounds.

    Also returns the target that dirtied most of the data written. Needs the tables block, syscalls
    and processes, and two targets.
    """
    over = whole(trace)
    jobs = [one for one in trace.manifest["targets"] if one["role"] != "daemon"]
    if over is None or len(jobs) < 2:
        return []
    flushes(trace)
    make_threads(trace)
    return [*_waits(trace, over), *_shares(trace, over)]


def _waits(trace: Trace, over: Window) -> list[Finding]:
    answer = ask(
        trace,
        f"WITH jobs AS {_JOBS},"
        " calls AS (SELECT o.target, c.ts, c.ts::HUGEINT + c.dur_ns AS upto FROM syscalls c"
        f" JOIN jobs o ON {owns('o', 'c', 'pid')} WHERE c.name IN {SYNC} AND c.dur_ns >= 0),"
        " marked AS (SELECT *, coalesce(ts > max(upto) OVER (PARTITION BY target ORDER BY ts"
        " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true)::INT AS apart FROM calls),"
        " numbered AS (SELECT *, sum(apart) OVER (PARTITION BY target ORDER BY ts) AS n"
        " FROM marked), waited AS (SELECT target, min(ts) AS ts, max(upto) AS upto FROM numbered"
        " GROUP BY target, n),"
        " bios AS (SELECT ts, pid, reason, target, nr_sector, pages, certainty FROM flushes"
        " WHERE reason IN ('fsync', 'sync', 'journal') AND ino IS NOT NULL"
        " AND NOT contains(rwbs, 'M') AND NOT own AND NOT below),"
        " written AS (SELECT o.target AS waiting, b.target AS dirtier, b.nr_sector, b.pages,"
        f" b.certainty FROM bios b JOIN jobs o ON {owns('o', 'b', 'pid')} UNION ALL"
        " SELECT w.target, b.target, b.nr_sector, b.pages, 'inferred'"
        " FROM (SELECT b.*, t.target AS waiting"
        f" FROM bios b ANTI JOIN jobs o ON {owns('o', 'b', 'pid')}"
        " CROSS JOIN (SELECT DISTINCT target FROM waited) t WHERE b.pid IS NOT NULL) b"
        " ASOF JOIN waited w ON b.waiting = w.target AND b.ts >= w.ts WHERE b.ts <= w.upto)"
        " SELECT 100 * n / sum(n) OVER of_call AS value, waiting, dirtier,"
        f" n * {SECTOR_BYTES} AS bytes, sum(n) OVER of_call * {SECTOR_BYTES} AS of,"
        " sum(pages) OVER of_call AS pages,"
        " sum(n) FILTER (dirtier IS NULL) OVER of_call AS unknown, exact"
        " FROM (SELECT waiting, dirtier, sum(nr_sector) AS n, sum(pages) AS pages,"
        " bool_and(certainty = 'exact') AS exact"
        " FROM written GROUP BY ALL) WINDOW of_call AS (PARTITION BY waiting)"
        " QUALIFY dirtier IS NOT NULL AND dirtier != waiting"
        " ORDER BY n DESC, waiting, dirtier LIMIT 1",
    )
    if answer is None:
        return []
    partly = answer.number("unknown") > 0
    exact = answer.row["exact"] is not None and bool(answer.row["exact"])
    certainty = AT_LEAST if partly else EXACT if exact else INFERRED
    dirtier, waiting = (_called(trace, answer.row[one]) for one in ("dirtier", "waiting"))
    sentence = (
        f"{dirtier} dirtied {'at least ' if partly else ''}{percent(answer.value)} of the data"
        f" written for {waiting}'s fsync ({size(answer.number('bytes'))} of"
        f" {size(answer.number('of'))}):"
        f" {waiting} waits for {dirtier}'s writes (give each a disk or file system of its own)"
    )
    weight = of_events(answer.value / 100, answer.number("pages"))
    return [finding(trace, over, _BOTH, "tenants", answer, sentence, "%", weight, certainty)]


def _shares(trace: Trace, over: Window) -> list[Finding]:
    answer = ask(
        trace,
        f"SELECT 100 * n / sum(n) OVER () AS value, target, n * {SECTOR_BYTES} AS bytes,"
        f" sum(n) OVER () * {SECTOR_BYTES} AS of, sum(pages) OVER () AS pages"
        " FROM (SELECT target, sum(nr_sector) AS n, sum(pages) AS pages FROM flushes"
        " WHERE NOT own AND NOT below GROUP BY target)"
        " QUALIFY target IS NOT NULL ORDER BY n DESC, target LIMIT 1",
    )
    if answer is None:
        return []
    sentence = (
        f"{_called(trace, answer.row['target'])} dirtied at least {percent(answer.value)} of the"
        f" data written to disks ({size(answer.number('bytes'))} of {size(answer.number('of'))})"
    )
    weight = of_events(answer.value / 100, answer.number("pages"))
    return [finding(trace, over, _BOTH, "writers", answer, sentence, "%", weight, AT_LEAST)]


def _called(trace: Trace, target: object) -> str:
    kinds = {one["name"]: one for one in trace.manifest["targets"]}
    facts = kinds.get(str(target))
    is_container = facts is not None and (facts["kind"] == "container" or "container" in facts)
    return f"{'container ' if is_container else ''}{named(target, 'an unknown target')}"
