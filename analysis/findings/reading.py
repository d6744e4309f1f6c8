"""Findings about reads through the page cache: read again, read in vain, evicted by others."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.findings.finding import (
    AT_LEAST,
    EXACT,
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
from tracer.analysis.views.reading.page_uses import page_uses
from tracer.analysis.views.reading.reads import reads
from tracer.analysis.views.threads import name_of_others, of_everybody, owns
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
    # A page that is read again ahead of its use, and never used, is unused: it may be in the count
    # of refaulted pages of these epochs, and leaves the cache in any of them.
    answer = ask(
        trace,
        "SELECT 100.0 * least(1, greatest(0, sum(refaulted) - any_value(in_vain))"
        " / nullif(sum(accessed), 0)) AS value, target, sum(refaulted)::BIGINT AS pages,"
        " sum(accessed)::BIGINT AS used, any_value(in_vain)::BIGINT AS in_vain,"
        " count(DISTINCT (epoch, pass)) AS epochs"
        " FROM (SELECT *, min(epoch) FILTER (pass = 1) OVER (PARTITION BY target) AS first_epoch,"
        " sum(unused) OVER (PARTITION BY target) AS in_vain FROM reads)"
        f" WHERE {_mine(trace)} AND (epoch > first_epoch OR pass > 1)"
        f" GROUP BY target HAVING sum(refaulted) >= {_FEW_PAGES}"
        " ORDER BY pages DESC, target LIMIT 1",
    )
    if answer is None:
        return []
    mine = answer.row["target"]
    target = name_of_others(trace) if pd.isna(mine) else str(mine)
    pages, in_vain, used = (answer.number(one) for one in ("pages", "in_vain", "used"))
    epochs = max(1, answer.count("epochs"))
    again = (
        f"each epoch of {name(target)} after the first reads {size(pages * page / epochs)}"
        " from disk again"
    )
    enough = least_memory(trace, target)
    certainty = AT_LEAST if in_vain else EXACT
    if in_vain > pages / 2:
        kept = "what it uses"
        sentence = (
            f"{again}, and uses {size(used * page / epochs)}; nobody knows how much of the former"
            f" it uses, since {size(in_vain * page)} of all that was read ahead was never used"
        )
    else:
        kept = "them"
        least = "at least " if in_vain else ""
        sentence = (
            f"{again}, {least}{percent(answer.value)} of what it uses, because these pages were"
            " evicted before their next use"
        )
    if enough is not None and enough[0]:
        at_least = "at least " if enough[1] else ""
        sentence += (
            f"; {at_least}{size(enough[0])} of page cache would keep {kept} (see tracer predict)"
        )
    weight = of_events(min(1.0, pages / used) if used else 0.0, pages)
    return [finding(trace, over, _MACHINE, "reads again", answer, sentence, "%", weight, certainty)]


def _in_vain(trace: Trace, over: Window, page: int) -> list[Finding]:
    answer = ask(
        trace,
        # Unused pages count for the last user of a file, even if another process read them ahead.
        "WITH files AS (SELECT sum(read_ahead) AS ahead, sum(accessed) AS accessed,"
        "     least(sum(unused), sum(read_ahead)) AS unused, sum(evicted) AS evicted"
        f" FROM reads WHERE {_mine(trace)} GROUP BY target, dev, ino)"
        " SELECT 100.0 * sum(unused) / nullif(sum(ahead), 0) AS value,"
        " sum(unused)::BIGINT AS pages, sum(accessed)::BIGINT AS used,"
        " sum(evicted) FILTER (unused > 0)::BIGINT AS evicted FROM files"
        f" HAVING sum(unused) >= {_FEW_PAGES}",
    )
    if answer is None or answer.value < _WASTED:
        return []
    wasted = size(answer.number("pages") * page)
    whose, who = ("", "programs read") if of_everybody(trace) else (" for the job", "it reads")
    evicted = ", or they were evicted before their use" if answer.count("evicted") else ""
    sentence = (
        f"{percent(answer.value)} of the pages read ahead{whose}, {wasted}, were never used:"
        f" {who} small parts of files{evicted} (use a smaller read-ahead, or POSIX_FADV_RANDOM)"
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
        f" FROM page_uses u JOIN threads p ON {owns('p', 'u', 'by_pid')}"
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
