"""The finding about the processes that load data: their time in read calls, and its causes."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.findings.data_waits import CAUSES, READS, SAID
from tracer.analysis.findings.finding import (
    ELSEWHERE,
    EXACT,
    INFERRED,
    Finding,
    ask,
    at_most,
    finding,
    percent,
)
from tracer.analysis.findings.window import Scope, Window, joined, window
from tracer.analysis.findings.workers import WORKERS
from tracer.analysis.views.calls_by_kind import READ
from tracer.analysis.views.waiting.critical_path import has_paths
from tracer.analysis.views.waiting.waits import waits
from tracer.store.trace import Trace

_HALF = 50.0
_COPYING = "spent on a CPU, as for copying from the page cache"
_SPAN = "ts::HUGEINT AS since, ts::HUGEINT + dur_ns AS upto"
_CALLS = f"FROM syscalls WHERE name IN {READ} AND dur_ns >= 0 AND pid IN {WORKERS}"
_STORAGE = "kind IN ('disk', 'fault', 'other')"
"""SQL condition: a wait within a read that faster storage may shorten."""


@dataclass(frozen=True)
class _Split:
    """The cause of most of the time in read calls.

    `storage`: the share (%) of the loading time that faster storage can save at most.
    """

    cause: str
    said: str
    storage: float
    certainty: str


def loaders(trace: Trace) -> list[Finding]:
    """Returns the share of the workers' loading time in which one of their threads reads.

    The rest is decoding, copying, page faults of mapped files, or waiting for a CPU. If the reads
    take half of the time, and the trace has the scheduler's events, the sentence says what most of
    the reads' time is spent on. Fetches that ended after the recording do not count. Needs the
    tables phases and syscalls.
    """
    over = window(trace)
    if over is None:
        return []
    loading = f"(SELECT sum(upto - since) FROM ({_fetches(over)}))"
    read = joined(f"SELECT pid, {_SPAN} {_CALLS}", "pid")
    answer = ask(
        trace,
        f"SELECT 100 * coalesce(sum(loaded), 0) / {loading} AS value, {loading} / {over.ns}"
        f" AS share FROM {_loaded(over, read)}",
    )
    if answer is None:
        return []
    split = _split(trace, over, loading) if answer.value >= _HALF and has_paths(trace) else None
    sentence = (
        f"processes that load data spend {percent(answer.value)} of their loading time in read"
        " calls"
    )
    if split is not None:
        saved = at_most(min(split.storage, answer.value))
        also = ", or data that fit in the page cache," if split.cause == READS else ""
        sentence += f", {split.said}: faster storage{also} would save {saved} of their loading time"
    elif answer.value >= _HALF:
        sentence += (
            ", where they wait for storage or for a CPU, or copy data from the page cache (the"
            " probe sched tells these apart)"
        )
    else:
        sentence += (
            ": the rest is decoding, copying, page faults of mapped files, or waiting for a CPU"
        )
    weight = ELSEWHERE * min(1.0, answer.number("share"))
    scopes = (Scope.TARGET,) if split is None else tuple(Scope)
    certainty = EXACT if split is None else split.certainty
    return [finding(trace, over, scopes, "loaders", answer, sentence, "%", weight, certainty)]


def _split(trace: Trace, over: Window, loading: str) -> _Split | None:
    """Returns what most of the time in read calls is spent on. `loading`: SQL for the whole time.

    The times of threads that read at once add up.
    """
    waited = (
        f"SELECT pid, {_SPAN}, {CAUSES} AS cause, {_STORAGE} AS storage,"
        f" certainty = 'exact' AS exact FROM {waits(trace)}"
        f" WHERE call IN {READ} AND dur_ns > 0 AND pid IN {WORKERS}"
    )
    called = f"SELECT pid, {_SPAN}, 'work' AS cause, false AS storage, true AS exact {_CALLS}"
    rows = trace.rows(
        f"SELECT cause, sum(loaded), sum(loaded) FILTER (exact), 100 * coalesce(sum(loaded)"
        f" FILTER (storage), 0) / {loading} FROM {_loaded(over, f'{called} UNION ALL {waited}')}"
        " GROUP BY cause"
    )
    spent = {str(cause): float(ns) for cause, ns, *_ in rows}
    told = {str(cause): float(exact or 0) for cause, _, exact, _ in rows}
    total = spent.pop("work", 0.0)
    if not total:
        return None
    spent["work"] = told["work"] = max(0.0, total - sum(spent.values()))
    cause = max(sorted(spent), key=lambda one: spent[one])
    words = _COPYING if cause == "work" else SAID[cause]
    certainty = EXACT if told[cause] >= spent[cause] / 2 else INFERRED
    said = f"{percent(min(100.0, 100 * spent[cause] / total))} of it {words}"
    return _Split(cause, said, sum(float(share) for *_, share in rows), certainty)


def _fetches(over: Window) -> str:
    """Returns SQL for the times in which workers load: pid, since, upto."""
    fetches = (
        'SELECT pid, start::HUGEINT AS since, "end"::HUGEINT AS upto FROM phases'
        " WHERE name = 'fetch' AND \"end\" > start"
        f' AND start >= {over.begun} AND "end" <= {over.recorded} AND {over.holds("start")}'
        f" AND pid IN {WORKERS}"
    )
    return joined(fetches, "pid")


def _loaded(over: Window, rows: str) -> str:
    """Returns SQL for rows (pid, since, upto) with one more column, loaded (ns).

    It is the part of their time in which their process loads.
    """
    loads = (
        "SELECT *, sum(upto - since) OVER (PARTITION BY pid ORDER BY since) AS summed"
        f" FROM ({_fetches(over)})"
    )

    def before(at: str, load: str) -> str:
        return f"coalesce({load}.summed - greatest(0, {load}.upto - {at}), 0)"

    return (
        f"(SELECT c.*, {before('c.upto', 'b')} - {before('c.since', 'a')} AS loaded FROM ({rows}) c"
        f" ASOF LEFT JOIN ({loads}) a ON c.pid = a.pid AND c.since >= a.since"
        f" ASOF LEFT JOIN ({loads}) b ON c.pid = b.pid AND c.upto >= b.since)"
    )
