"""Findings about minibatches: the parts of their time, and slow minibatches."""

from __future__ import annotations

from tracer.analysis.findings.finding import (
    Answer,
    Finding,
    ask,
    finding,
    percent,
    seconds,
)
from tracer.analysis.findings.window import Scope, Window, window
from tracer.analysis.views.waiting.critical_path import RUN, critical_path, has_paths
from tracer.analysis.views.waiting.gpu_waits import waited_in
from tracer.analysis.views.waiting.steps import OUTER_PARTS
from tracer.analysis.views.waiting.steps import steps as steps_view
from tracer.digits import counted
from tracer.store.trace import Trace

_PARTS = ("forward", "backward", "optimizer")
_ALL_PARTS = ("fetch", *_PARTS, "checkpoint")
_MUCH = 5.0
_COMPUTES = (RUN, "other")
"""Kinds of segments in which a thread computes, or waits, perhaps for a GPU."""


def steps(trace: Trace) -> list[Finding]:
    """Returns the shares of compute and overhead in a minibatch, and the cost of slow minibatches.

    Times are CPU times, as in the view `steps`. Needs the table phases, with steps marked.
    """
    over = window(trace)
    if over is None:
        return []
    steps_view(trace)
    return [
        *_computing(trace, over),
        *_overhead(trace, over),
        *_waiting_for_gpu(trace, over),
        *_slow(trace, over),
    ]


def _computing(trace: Trace, over: Window) -> list[Finding]:
    parts = ", ".join(f"100 * sum({part}_ns) / sum(total_ns) AS {part}" for part in _PARTS)
    answer = ask(
        trace,
        f"SELECT 100 * sum(compute_ns) / sum(total_ns) AS value, {parts},"
        f" avg(total_ns) / 1e9 AS s, count(*) AS steps FROM steps WHERE {over.steps}",
    )
    if answer is None or not answer.value:
        return []
    said = ", ".join(f"{part} {percent(answer.number(part))}" for part in _PARTS)
    sentence = (
        f"computing takes {percent(answer.value)} of a minibatch's {seconds(answer.number('s'))}"
        f" on average ({said}; {counted(answer.count('steps'), 'minibatch', 'minibatches')})"
    )
    share = answer.value / 100
    own = _own(trace, over, share, f"kind IN {_COMPUTES} AND phase IN {_PARTS}")
    if waited := percent(100 * (share - own)) if 100 * (share - own) >= _MUCH else "":
        sentence += f"; in {waited} of a minibatch's time, the thread that computes only waits"
    return [finding(trace, over, (), "computing", answer, sentence, "%", own)]


def _overhead(trace: Trace, over: Window) -> list[Finding]:
    answer = ask(
        trace,
        "SELECT 100 * sum(overhead_ns) / sum(total_ns) AS value, avg(overhead_ns) / 1e9 AS s,"
        " count(*) FILTER (checkpoint_ns IS NULL) AS unseen"
        f" FROM steps WHERE {over.steps}",
    )
    if answer is None or answer.value < _MUCH:
        return []
    unseen = "saving checkpoints (uprobes see none), " if answer.count("unseen") else ""
    sentence = (
        f"{percent(answer.value)} of a minibatch's time is neither waiting for data nor computing"
        f" ({seconds(answer.number('s'))} each), for example moving data, reading the loss,"
        f" {unseen}or logging"
    )
    waited = _gpu_overhead(trace, over)
    scopes: tuple[Scope, ...] = ()
    if waited is not None and waited.value >= _MUCH:
        scopes = (Scope.TARGET,)
        of_it = min(waited.number("of_overhead"), 100.0)
        sentence += f"; in {percent(of_it)} of this time, it waits for the GPU"
    outside = f"kind = '{RUN}' AND tid = step_tid AND coalesce(phase, '') NOT IN {_ALL_PARTS}"
    weight = _own(trace, over, answer.value / 100, outside)
    if waited is not None and not has_paths(trace):
        weight = max(weight - waited.value / 100, 0.0)
    return [finding(trace, over, scopes, "overhead", answer, sentence, "%", weight)]


def _waiting_for_gpu(trace: Trace, over: Window) -> list[Finding]:
    """Returns the share of the steps' time in which their threads wait for the GPU.

    The critical path tells more, if it was recorded.
    """
    if has_paths(trace):
        return []
    answer = ask(
        trace,
        "SELECT 100 * sum(gpu_wait_ns) / sum(total_ns) AS value, avg(gpu_wait_ns) / 1e9 AS s"
        f" FROM steps WHERE {over.steps} AND gpu_wait_ns IS NOT NULL",
    )
    if answer is None or answer.value < _MUCH:
        return []
    sentence = (
        f"in {percent(answer.value)} of a minibatch's time, its thread waits for the GPU"
        f" ({seconds(answer.number('s'))} each)"
    )
    weight, scopes = answer.value / 100, (Scope.TARGET,)
    return [finding(trace, over, scopes, "waits for the GPU", answer, sentence, "%", weight)]


def _gpu_overhead(trace: Trace, over: Window) -> Answer | None:
    """Returns the share (%) of the steps' time that is overhead and waits for the GPU.

    Column of_overhead: its share (%) of the overhead. None if no such waits were recorded.
    """
    known = f"FROM steps WHERE {over.steps} AND gpu_wait_ns IS NOT NULL"
    parts = (
        f"FROM ({OUTER_PARTS}) WHERE (pid, tid, step_start) IN (SELECT (pid, tid, start) {known})"
    )
    return ask(
        trace,
        "SELECT 100 * (gpu - in_parts) / total AS value,"
        " 100 * (gpu - in_parts) / overhead AS of_overhead"
        " FROM (SELECT sum(gpu_wait_ns) AS gpu, sum(total_ns) AS total,"
        f" sum(overhead_ns) AS overhead {known}),"
        f" (SELECT coalesce(sum(waited), 0) AS in_parts FROM {waited_in(parts)})",
    )


def _own(trace: Trace, over: Window, share: float, segments: str) -> float:
    """Returns a share of the steps' time without its waits, if these were measured.

    `segments`: SQL, true for the segments of critical paths that count.
    """
    if not has_paths(trace):
        return share
    critical_path(trace)
    query = f"SELECT sum(dur_ns) FILTER ({segments}) / sum(dur_ns) AS value FROM critical_path"
    own = ask(trace, f"{query} WHERE {over.segments}")
    return share if own is None else min(own.value, share)


def _slow(trace: Trace, over: Window) -> list[Finding]:
    answer = ask(
        trace,
        "SELECT 100 * sum(total_ns - usual) FILTER (total_ns > 2 * usual) / sum(total_ns) AS value,"
        " count(*) FILTER (total_ns > 2 * usual) AS slow, count(*) AS steps, any_value(usual) / 1e9"
        " AS s, max(total_ns) / 1e9 AS longest_s FROM steps,"
        f" (SELECT median(total_ns) AS usual FROM steps WHERE {over.steps})"
        f" WHERE {over.steps}",
    )
    if answer is None or not answer.count("slow"):
        return []
    sentence = (
        f"{answer.count('slow'):,} of {answer.count('steps'):,} minibatches take more than twice"
        f" the median of {seconds(answer.number('s'))} (the longest"
        f" {seconds(answer.number('longest_s'))}): the time beyond the median is"
        f" {percent(answer.value)} of all minibatches' time"
    )
    weight = answer.value / 100
    return [finding(trace, over, (), "slow minibatches", answer, sentence, "%", weight)]
