"""Findings about waiting for data."""

from __future__ import annotations

from tracer.analysis.findings.data_waits import cause_of_data_waits
from tracer.analysis.findings.finding import (
    EXACT,
    INFERRED,
    Finding,
    ask,
    finding,
    percent,
    seconds,
)
from tracer.analysis.findings.room import Full, no_time_left
from tracer.analysis.findings.window import Scope, Window, window
from tracer.analysis.findings.workers import AT_ONCE, LESS_WORK
from tracer.analysis.views.waiting.critical_path import critical_path, has_paths
from tracer.analysis.views.waiting.steps import fetches_of_steps, steps
from tracer.digits import show_digits
from tracer.store.trace import Trace

_NO_EVENTS = ()
"""No scopes: marks are not kernel events, so lost kernel events do not affect them."""
_MUCH = 10.0
_MANY_TIMES = 1.5
_HALF = 0.5


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
    certainty = EXACT
    if answer.value >= _MUCH:
        cause = cause_of_data_waits(trace, over, workers)
        if cause is None:
            sentence += _without_events(workers, no_time_left(trace))
        else:
            sentence += f", {cause.said}: {cause.mend}"
            scopes = tuple(Scope)
            certainty = INFERRED if cause.inferred else EXACT
    weight = answer.value / 100
    return [
        finding(trace, over, scopes, "data loading", answer, sentence, "%", weight, certainty),
        *_first_epoch(trace, over),
    ]


def _without_events(workers: int, full: Full | None) -> str:
    """Returns who loads the data, and advice. `full`: what has no time for more workers."""
    if workers > 1:
        who = f"the {workers} processes that load data do not keep up"
        mend = f"use more workers, or {LESS_WORK}"
    elif workers:
        who, mend = "the one process that loads data does not keep up", "use more workers"
    else:
        who = "the training process loads its data itself"
        mend = "set num_workers of the DataLoader"
    if full is not None:
        return f": {who}, and {full.said} ({LESS_WORK}, or {full.mend})"
    return f": {who} ({mend})"


def _first_epoch(trace: Trace, over: Window) -> list[Finding]:
    # If the epochs begin at 0 again, that is no first epoch: the data has been read before.
    answer = ask(
        trace,
        f"""
        SELECT avg(fetch_stall_ns) FILTER (first) / avg(fetch_stall_ns) FILTER (NOT first) AS value,
            avg(fetch_stall_ns) FILTER (first) / 1e9 AS first_s,
            avg(fetch_stall_ns) FILTER (NOT first) / 1e9 AS later_s,
            any_value(of_first) / sum(total_ns) AS share
        FROM (SELECT *, sum(fetch_stall_ns) FILTER (first) OVER () AS of_first
            FROM {_epochs(over)})
        """,
    )
    if answer is None or answer.value < _MANY_TIMES:
        return []
    first, later = (answer.number(name) for name in ("first_s", "later_s"))
    times = show_digits(answer.value)
    sentence = (
        f"minibatches of the first epoch wait {times} times as long for their data as"
        f" later ones ({seconds(first)}, then {seconds(later)})"
    )
    scopes: tuple[Scope, ...] = _NO_EVENTS
    explained = _disks_more(trace, over)
    if explained is None:
        sentence += ", perhaps since later epochs find data in the page cache"
    else:
        scopes = tuple(Scope)
        part = min(1.0, max(0.0, explained / (first - later)))
        sentence += f": waits for disks are {percent(100 * part)} of the difference"
        if part > _HALF:
            sentence += ", since later epochs often find data in the page cache"
    weight = answer.number("share")
    return [finding(trace, over, scopes, "first epoch", answer, sentence, "times", weight)]


def _epochs(over: Window) -> str:
    """Returns SQL for the steps with one more column: first, whether they are of the first epoch.

    It is null for steps of epoch 0 that follow others.
    """
    return (
        "(SELECT *, CASE WHEN start >= later THEN false WHEN epoch = 0 AND start < later THEN true"
        " END AS first FROM (SELECT *, min(start) FILTER (epoch > 0) OVER (PARTITION BY pid) AS"
        f" later FROM steps WHERE {over.steps}))"
    )


def _disks_more(trace: Trace, over: Window) -> float | None:
    """Returns by how much (s) a first epoch's minibatch waits longer for disks than a later one.

    Only waits for data count, in calls and at page faults. Returns None if the trace does not tell.
    """
    if not has_paths(trace):
        return None
    answer = ask(
        trace,
        f"""
        WITH epochs AS {_epochs(over)}
        SELECT (coalesce(sum(c.dur_ns) FILTER (first), 0) / any_value(firsts)
            - coalesce(sum(c.dur_ns) FILTER (NOT first), 0) / any_value(laters)) / 1e9 AS value
        FROM (SELECT count(*) FILTER (first) AS firsts, count(*) FILTER (NOT first) AS laters
            FROM epochs)
        LEFT JOIN (
            SELECT e.first, c.dur_ns FROM (FROM {critical_path(trace)} WHERE {over.segments}) c
            ASOF JOIN {fetches_of_steps(trace)} f
                ON c.step_pid = f.pid AND c.step_tid = f.tid AND c.ts >= f.ts
            JOIN epochs e ON c.step_pid = e.pid AND c.step_tid = e.tid AND c.step_start = e.start
            WHERE c.step_start = f.step_start AND c.kind IN ('disk', 'fault')
        ) c ON true
        """,
    )
    return None if answer is None else answer.value
