"""Findings about waiting for data, and about the workers that load it."""

from __future__ import annotations

from tracer.analysis.findings.data_waits import cause_of_data_waits
from tracer.analysis.findings.finding import (
    ELSEWHERE,
    Finding,
    ask,
    finding,
    percent,
    seconds,
)
from tracer.analysis.findings.window import Scope, Window, joined, window
from tracer.analysis.views.calls_by_kind import READ
from tracer.analysis.views.steps import steps
from tracer.digits import show_digits
from tracer.store.trace import Trace

_NO_EVENTS = ()
"""No scopes: marks are not kernel events, so lost kernel events do not affect them."""
_MUCH = 10.0
_HALF = 50.0
_MANY_TIMES = 1.5
_WORKERS = "(SELECT pid FROM phases GROUP BY pid HAVING bool_and(name = 'fetch') AND count(*) > 0)"
"""SQL for the processes that only mark fetches: a DataLoader's workers."""
_AT_ONCE = (
    "SELECT max(n) FROM (SELECT sum(more) OVER (ORDER BY ts, more DESC) AS n FROM"
    ' (SELECT pid, unnest([min(start), max("end")]) AS ts, unnest([1, -1]) AS more'
    f" FROM phases WHERE pid IN {_WORKERS} GROUP BY pid))"
)
"""SQL for the greatest number of workers that exist at once. Each epoch may have new workers."""


def stalls(trace: Trace) -> list[Finding]:
    """Returns the share of the minibatches' time in which the training thread waits for data.

    If the trace has the scheduler's events, the sentence says what these waits are spent on. Also
    returns a finding about the first epoch. Needs the table phases, with steps marked.
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
    scopes: tuple[Scope, ...] = _NO_EVENTS
    if answer.value >= _MUCH:
        cause = cause_of_data_waits(trace, over, workers)
        if cause is None:
            sentence += _without_events(workers)
        else:
            sentence += f", {cause.said}: {cause.mend}"
            scopes = tuple(Scope)
    weight = answer.value / 100
    found = [finding(trace, over, scopes, "data loading", answer, sentence, "%", weight)]
    return [*found, *_first_epoch(trace, over)]


def _without_events(workers: int) -> str:
    if workers > 1:
        return (
            f": the {workers} processes that load data do not keep up (use more workers, or do less"
            " work for each sample)"
        )
    if workers:
        return ": the one process that loads data does not keep up (use more workers)"
    return ": the training process loads its data itself (set num_workers of the DataLoader)"


def _first_epoch(trace: Trace, over: Window) -> list[Finding]:
    # If the epochs begin at 0 again, that is no first epoch: the data has been read before.
    answer = ask(
        trace,
        f"""
        WITH counted AS (
            SELECT *, min(start) FILTER (epoch > 0) OVER (PARTITION BY pid) AS later
            FROM steps WHERE {over.steps}
        ), summed AS (
            SELECT avg(fetch_stall_ns) FILTER (epoch = 0 AND start < later) AS first,
                avg(fetch_stall_ns) FILTER (start >= later) AS others,
                sum(fetch_stall_ns) FILTER (epoch = 0 AND start < later) / sum(total_ns) AS share
            FROM counted
        )
        SELECT first / others AS value, first / 1e9 AS first_s, others / 1e9 AS later_s, share
        FROM summed
        """,
    )
    if answer is None or answer.value < _MANY_TIMES:
        return []
    first, later = (seconds(answer.number(name)) for name in ("first_s", "later_s"))
    times = show_digits(answer.value)
    sentence = (
        f"minibatches of the first epoch wait {times} times as long for their data as"
        f" later ones ({first}, then {later}): later epochs often find data in the page cache"
    )
    weight = answer.number("share")
    return [finding(trace, over, _NO_EVENTS, "first epoch", answer, sentence, "times", weight)]


def readers(trace: Trace) -> list[Finding]:
    """Returns the share of the workers' loading time in which one of their threads reads.

    The rest is decoding, copying, or page faults of mapped files. Fetches that ended after the
    recording do not count. Needs the tables phases and syscalls.
    """
    over = window(trace)
    if over is None:
        return []
    fetches = (
        'SELECT pid, start::HUGEINT AS since, "end"::HUGEINT AS upto FROM phases'
        " WHERE name = 'fetch' AND \"end\" > start"
        f' AND "end" <= {over.recorded} AND {over.holds("start")} AND pid IN {_WORKERS}'
    )
    calls = (
        "SELECT pid, ts::HUGEINT AS since, ts::HUGEINT + dur_ns AS upto FROM syscalls"
        f" WHERE name IN {READ} AND dur_ns >= 0 AND pid IN {_WORKERS}"
    )
    loads = (
        "SELECT *, sum(upto - since) OVER (PARTITION BY pid ORDER BY since) AS summed"
        f" FROM ({joined(fetches, 'pid')})"
    )
    loading = f"(SELECT sum(upto - since) FROM ({joined(fetches, 'pid')}))"

    def loaded(at: str, load: str) -> str:
        return f"coalesce({load}.summed - greatest(0, {load}.upto - {at}), 0)"

    answer = ask(
        trace,
        f"SELECT 100 * coalesce(sum({loaded('c.upto', 'b')} - {loaded('c.since', 'a')}), 0)"
        f" / {loading} AS value, {loading} / {over.ns} AS share FROM ({joined(calls, 'pid')}) c"
        f" ASOF LEFT JOIN ({loads}) a ON c.pid = a.pid AND c.since >= a.since"
        f" ASOF LEFT JOIN ({loads}) b ON c.pid = b.pid AND c.upto >= b.since",
    )
    if answer is None:
        return []
    rest = (
        "faster storage, or data that fit in the page cache, would help"
        if answer.value >= _HALF
        else "the rest is decoding, copying, or page faults of mapped files"
    )
    sentence = (
        f"processes that load data spend {percent(answer.value)} of their loading time in read"
        f" calls: {rest}"
    )
    weight = ELSEWHERE * min(1.0, answer.number("share"))
    target = (Scope.TARGET,)
    return [finding(trace, over, target, "loaders", answer, sentence, "%", weight)]
