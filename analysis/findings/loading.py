"""How long a training waits for its data, and what its workers do meanwhile."""

from __future__ import annotations

from analysis.findings.finding import (
    ELSEWHERE,
    Finding,
    ask,
    finding,
    percent,
    seconds,
)
from analysis.findings.window import Scope, Window, window
from analysis.views.calls_by_kind import READ
from analysis.views.steps import steps
from tracer.store.trace import Trace

_NO_EVENTS = ()
"""Marks are no events of the kernel's: none are lost with these."""
_MUCH = 10.0
_HALF = 50.0
_MANY_TIMES = 1.5
_WORKERS = "(SELECT pid FROM phases GROUP BY pid HAVING bool_and(name = 'fetch') AND count(*) > 0)"
"""Processes that do nothing but fetch: a DataLoader's workers."""
_AT_ONCE = (
    "SELECT max(n) FROM (SELECT sum(more) OVER (ORDER BY ts, more DESC) AS n FROM"
    ' (SELECT pid, unnest([min(start), max("end")]) AS ts, unnest([1, -1]) AS more'
    f" FROM phases WHERE pid IN {_WORKERS} GROUP BY pid))"
)
"""How many of them there are at once: each epoch may have new ones."""


def stalls(trace: Trace) -> list[Finding]:
    """The share of minibatches' time in which the training thread itself waits for its data.

    Needs table phases, with steps marked.
    """
    over = window(trace)
    if over is None:
        return []
    steps(trace)
    answer = ask(
        trace,
        "SELECT 100 * sum(fetch_stall_ns) / sum(total_ns) AS value, count(*) AS steps,"
        f" avg(fetch_stall_ns) / 1e9 AS s, ({_AT_ONCE}) AS workers"
        f" FROM steps WHERE {over.steps}",
    )
    if answer is None:
        return []
    workers = answer.count("workers")
    sentence = (
        f"waiting for data takes {percent(answer.value)} of a minibatch's time"
        f" ({seconds(answer.number('s'))} each)"
    )
    if answer.value >= _MUCH:
        sentence += (
            f": the {workers} processes that load data do not keep up (more workers, or less work"
            " for each sample)"
            if workers > 1
            else ": the one process that loads data does not keep up (more workers)"
            if workers
            else ": no process of its own loads data (give the DataLoader workers)"
        )
    weight = answer.value / 100
    found = [finding(trace, over, _NO_EVENTS, "data loading", answer, sentence, "%", weight)]
    return [*found, *_first_epoch(trace, over)]


def _first_epoch(trace: Trace, over: Window) -> list[Finding]:
    answer = ask(
        trace,
        "SELECT avg(fetch_stall_ns) FILTER (epoch = 0) / avg(fetch_stall_ns) FILTER (epoch > 0)"
        " AS value, avg(fetch_stall_ns) FILTER (epoch = 0) / 1e9 AS first_s,"
        " avg(fetch_stall_ns) FILTER (epoch > 0) / 1e9 AS later_s,"
        " sum(fetch_stall_ns) FILTER (epoch = 0) / sum(total_ns) AS share"
        f" FROM steps WHERE {over.steps}",
    )
    if answer is None or answer.value < _MANY_TIMES:
        return []
    first, later = (seconds(answer.number(name)) for name in ("first_s", "later_s"))
    sentence = (
        f"minibatches of the first epoch wait {answer.value:.3g} times as long for their data as"
        f" later ones ({first}, then {later}): from then on it is in the page cache"
    )
    weight = answer.number("share")
    return [finding(trace, over, _NO_EVENTS, "first epoch", answer, sentence, "times", weight)]


def readers(trace: Trace) -> list[Finding]:
    """How much of the workers' time of loading is in calls that read.

    The rest is decoding and copying, or page faults of mapped files. Needs tables phases, syscalls.
    """
    over = window(trace)
    if over is None:
        return []
    fetches = (
        'SELECT tid, start, "end" FROM phases WHERE name = \'fetch\' AND "end" > start'
        f" AND {over.holds('start')} AND pid IN {_WORKERS}"
    )
    loading = f'(SELECT sum("end" - start) FROM ({fetches}))'
    answer = ask(
        trace,
        f"SELECT 100 * coalesce(sum(dur_ns), 0) / {loading} AS value, {loading} / {over.ns} AS"
        f" share FROM (SELECT tid, ts, dur_ns FROM syscalls WHERE name IN {READ} AND dur_ns >= 0"
        f" AND {over.holds()} AND pid IN {_WORKERS}) c ASOF JOIN ({fetches}) f"
        ' ON c.tid = f.tid AND c.ts >= f.start WHERE c.ts < f."end"',
    )
    if answer is None:
        return []
    rest = (
        "faster storage, or data that fit the page cache, would help"
        if answer.value >= _HALF
        else "the rest is decoding and copying, or pages of mapped files"
    )
    sentence = (
        f"processes that load data spend {percent(answer.value)} of loading in calls that read:"
        f" {rest}"
    )
    weight = ELSEWHERE * min(1.0, answer.number("share"))
    target = (Scope.TARGET,)
    return [finding(trace, over, target, "loaders", answer, sentence, "%", weight)]
