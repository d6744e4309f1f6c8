"""Findings about waiting for data."""

from __future__ import annotations

from tracer.analysis.findings.data_waits import cause_of_data_waits
from tracer.analysis.findings.finding import (
    Finding,
    ask,
    finding,
    percent,
    seconds,
)
from tracer.analysis.findings.window import Scope, Window, window
from tracer.analysis.findings.workers import AT_ONCE
from tracer.analysis.views.steps import steps
from tracer.digits import show_digits
from tracer.store.trace import Trace

_NO_EVENTS = ()
"""No scopes: marks are not kernel events, so lost kernel events do not affect them."""
_MUCH = 10.0
_MANY_TIMES = 1.5


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
        f" avg(fetch_stall_ns) / 1e9 AS s, ({AT_ONCE}) AS workers"
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
