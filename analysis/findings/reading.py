"""Findings about reads through the page cache: read again, read in vain, evicted by others."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.findings.finding import (
    Finding,
    ask,
    finding,
    name,
    of_events,
    percent,
    size,
)
from tracer.analysis.findings.window import Scope, Window, whole
from tracer.analysis.memory.enough import least_memory
from tracer.analysis.views.page_uses import page_uses
from tracer.analysis.views.reads import reads
from tracer.analysis.views.threads import name_of_others, of_everybody
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

_MACHINE = (Scope.MACHINE,)
_FEW_PAGES = 256
"""Pages (1 MiB) of which a share is worth a sentence."""
_WASTED = 50
"""Percentage of the pages read ahead that must be unused for a finding."""


def reading(trace: Trace) -> list[Finding]:
    """Returns the pages that later epochs read again, read-ahead in vain, and evictions by others.

    Needs the tables page_cache and processes.
    """
    over = whole(trace)
    if over is None:
        return []
    reads(trace)
    page = page_bytes(trace.manifest)
    return [
        *_again(trace, over, page),
        *_in_vain(trace, over, page),
        *_by_others(trace, over, page),
    ]


def _mine(trace: Trace) -> str:
    """Returns the SQL condition that a row of `reads` is one of a target, or of any process."""
    return "true" if of_everybody(trace) else "target IS NOT NULL"


def _again(trace: Trace, over: Window, page: int) -> list[Finding]:
    answer = ask(
        trace,
        "SELECT 100.0 * sum(refaulted) / nullif(sum(accessed), 0) AS value, target,"
        " sum(refaulted)::BIGINT AS pages, count(DISTINCT (epoch, pass)) AS epochs"
        " FROM (SELECT *, min(epoch) FILTER (pass = 1) OVER (PARTITION BY target) AS first_epoch"
        " FROM reads)"
        f" WHERE {_mine(trace)} AND (epoch > first_epoch OR pass > 1)"
        f" GROUP BY target HAVING sum(refaulted) >= {_FEW_PAGES}"
        " ORDER BY pages DESC, target LIMIT 1",
    )
    if answer is None:
        return []
    mine = answer.row["target"]
    target = name_of_others(trace) if pd.isna(mine) else str(mine)
    again = answer.number("pages") * page / max(1, answer.count("epochs"))
    enough = least_memory(trace, target)
    advice = (
        f"; {size(enough)} of page cache would keep them (see tracer predict)" if enough else ""
    )
    sentence = (
        f"each epoch of {name(target)} after the first reads {size(again)} from disk again,"
        f" {percent(answer.value)} of what it uses, because these pages were evicted before their"
        f" next use{advice}"
    )
    weight = of_events(answer.value / 100, answer.number("pages"))
    return [finding(trace, over, _MACHINE, "reads again", answer, sentence, "%", weight)]


def _in_vain(trace: Trace, over: Window, page: int) -> list[Finding]:
    answer = ask(
        trace,
        # Unused pages count for the last user of a file, even if another process read them ahead.
        "WITH files AS (SELECT sum(read_ahead) AS ahead, sum(accessed) AS accessed,"
        "     least(sum(unused), sum(read_ahead)) AS unused"
        f" FROM reads WHERE {_mine(trace)} GROUP BY target, dev, ino)"
        " SELECT 100.0 * sum(unused) / nullif(sum(ahead), 0) AS value,"
        " sum(unused)::BIGINT AS pages, sum(accessed)::BIGINT AS used FROM files"
        f" HAVING sum(unused) >= {_FEW_PAGES}",
    )
    if answer is None or answer.value < _WASTED:
        return []
    wasted = size(answer.number("pages") * page)
    whose, who = ("", "programs read") if of_everybody(trace) else (" for the job", "it reads")
    sentence = (
        f"{percent(answer.value)} of the pages read ahead{whose}, {wasted}, were never used:"
        f" {who} small parts of files (use a smaller read-ahead, or POSIX_FADV_RANDOM)"
    )
    share = answer.number("pages") / max(1.0, answer.number("used"))
    weight = of_events(min(1.0, share), answer.number("pages"))
    return [finding(trace, over, _MACHINE, "read-ahead", answer, sentence, "%", weight)]


def _by_others(trace: Trace, over: Window, page: int) -> list[Finding]:
    page_uses(trace)
    answer = ask(
        trace,
        "WITH evictions AS ("
        " SELECT u.target, coalesce(p.target, p.comm) AS evicter, sum(u.evicted)::BIGINT AS pages"
        " FROM page_uses u JOIN (SELECT pid, any_value(target) AS target, any_value(comm) AS comm,"
        "     bool_or(ppid = 2 OR pid = 2) AS kernel FROM processes WHERE tid = pid GROUP BY pid) p"
        "     ON u.by_pid = p.pid"
        " WHERE u.target IS NOT NULL AND u.evicted > 0 AND NOT coalesce(p.kernel, false)"
        "     AND p.target IS DISTINCT FROM u.target GROUP BY ALL)"
        " SELECT 100.0 * pages / nullif((SELECT sum(evicted) FROM page_uses u"
        "     WHERE u.target = e.target), 0) AS value, target,"
        f" evicter, pages FROM evictions e WHERE pages >= {_FEW_PAGES}"
        " ORDER BY pages DESC, target, evicter LIMIT 1",
    )
    if answer is None:
        return []
    sentence = (
        f"{name(answer.row['evicter'], 'another process')} evicted {percent(answer.value)} of the"
        f" pages that {name(answer.row['target'])} lost from the cache"
        f" ({size(answer.number('pages') * page)}): they share too little memory (give each a limit"
        " of its own)"
    )
    weight = of_events(answer.value / 100, answer.number("pages"))
    return [finding(trace, over, _MACHINE, "evictions", answer, sentence, "%", weight)]
