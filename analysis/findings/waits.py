"""Findings about what the steps' time depended on, by their critical paths."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.findings.cpu_holders import ADVISED, FOREIGN, OWN, holder, mend_of_cpu_waits
from tracer.analysis.findings.finding import (
    EXACT,
    INFERRED,
    Answer,
    Finding,
    ask,
    file_name,
    finding,
    name,
    percent,
)
from tracer.analysis.findings.window import Scope, Window, window
from tracer.analysis.findings.workers import more_workers, workers_at_once
from tracer.analysis.views.waiting.critical_path import RUN, main_steps, path_sums
from tracer.analysis.views.waiting.sync_parts import AWAITED
from tracer.store.trace import Trace

_LEAST = 2.0
"""Smallest percentage of the steps' time that a finding is made of."""

_SAID = {
    "cpu": "waits for a CPU",
    "throttled": "waits because its cgroup has used up its CPU quota",
    "reclaim": "waits for memory that others have to give up",
    "disk": "waits for reads of a disk",
    "fault": "waits for pages of files, at page faults",
    "sync": "waits until data is on a disk",
    "dirty": "is put to sleep for having dirtied pages",
    "lock": "waits for a lock",
    "ipc": "waits for another process",
    "child": "waits for a child process",
    "timer": "sleeps for a given time",
    "gpu": "waits for the GPU",
    "frozen": "is stopped, since its cgroup is frozen",
    "other": "waits, and no event tells for what",
}
_MENDS = {
    "throttled": "raise the quota, or use fewer threads, so that the job does not stop",
    "reclaim": "raise the memory limit, or keep less in memory",
    "disk": "read ahead with {workers}, or keep the data in memory",
    "fault": "read the file before it is needed, or give the job more memory",
    "sync": "make data durable less often, or on a thread of its own",
    "lock": "threads of one Python process run one at a time, so move their work into processes",
    "dirty": "write less at once, or raise the limits of dirty pages",
}

_NAMELESS = "a thread without a name"
_WHO = "if(kind = 'sync' AND detail IS NOT NULL, detail, coalesce(by_comm, detail))"

_QUERY = """WITH path AS ({path}), parts AS (
    SELECT {who} AS who, sum(dur_ns) AS ns, sum(dur_ns) FILTER (certainty != 'exact') AS inferred,
        sum(dur_ns) FILTER (by_tid IS NULL) AS nobodys,
        sum(dur_ns) FILTER (by_tid IS NULL AND certainty = 'exact') AS idle,
        sum(dur_ns) FILTER ({own}) AS own, sum(dur_ns) FILTER ({foreign}) AS others
    FROM path WHERE {which} GROUP BY ALL
), counted AS (
    SELECT *, {counted} AS counted FROM parts
)
SELECT 100 * sum(ns) / (SELECT sum(dur_ns) FROM path) AS value,
    arg_max(who, counted) AS who,
    100 * max(counted) FILTER (who IS NOT NULL) / sum(ns) AS part,
    coalesce(sum(inferred), 0) / sum(ns) AS inferred,
    coalesce(sum(nobodys), 0) / sum(ns) AS nobodys, coalesce(sum(idle), 0) / sum(ns) AS idle,
    coalesce(sum(own), 0) / sum(ns) AS own, coalesce(sum(others), 0) / sum(ns) AS others
FROM counted HAVING sum(ns) > 0"""


def waits(trace: Trace) -> list[Finding]:
    """Returns the shares of the steps' time that its critical path spends in each kind of wait.

    Needs the tables phases, processes and off_cpu, with steps marked.
    """
    over = window(trace)
    if over is None:
        return []
    sums = path_sums(trace)
    found = []
    shares = trace.sql(
        f"SELECT kind, tid = step_tid AS own, 100 * sum(dur_ns) / sum(sum(dur_ns)) OVER () AS share"
        f" FROM {sums} GROUP BY ALL"
    )
    for kind in _SAID:
        if shares.loc[shares["kind"] == kind, "share"].sum() >= _LEAST:
            found += _of_kind(trace, over, kind)
    elsewhere = (shares["kind"] == RUN) & (shares["own"] == False)  # noqa: E712 nulls are neither
    if shares.loc[elsewhere, "share"].sum() >= _LEAST:
        found += _of_helpers(trace, over)
    return found


def _ask(trace: Trace, who: str, which: str, counted: str = "ns") -> Answer | None:
    """Asks for a share of the steps' time. `counted`: SQL for the part of `ns` that ranks `who`."""
    path = f"SELECT * FROM critical_path WHERE {main_steps(trace)}"
    exact, quick = (
        _QUERY.format(path=rows, who=who, which=which, own=OWN, foreign=FOREIGN, counted=counted)
        for rows in (path, f"FROM {path_sums(trace)}")
    )
    return ask(trace, exact, quick)


def _of_kind(trace: Trace, over: Window, kind: str) -> list[Finding]:
    which = f"kind = '{kind}'"
    answer = (
        _ask(trace, holder(trace), which, ADVISED) if kind == "cpu" else _ask(trace, _WHO, which)
    )
    if answer is None:
        return []
    sentence = f"in {percent(answer.value)} of the steps' time, the thread that they depend on"
    sentence += f" {_SAID[kind]}"
    if kind == "cpu" and answer.number("nobodys") == 0:
        sentence += " that another thread has"
    if not pd.isna(answer.row["who"]):
        of = {"cpu": "has", "fault": "of", "disk": "of", "dirty": "of", "gpu": "in"}.get(
            kind, "for"
        )
        who = answer.row["who"]
        if kind == "sync" and who in AWAITED:
            who = AWAITED[who]
        else:
            who = name(who) if kind == "cpu" else file_name(who)
        part = percent(answer.number("part"))
        sentence += (
            f" ({part} of it while {who} has it)" if of == "has" else f" ({part} of it {of} {who})"
        )
    if kind in _MENDS:
        sentence += f": {_MENDS[kind].format(workers=more_workers(workers_at_once(trace)))}"
    elif kind == "cpu" and answer.number("idle") <= 0.5:
        own, foreign = answer.number("own"), answer.number("others")
        sentence += f": {mend_of_cpu_waits(own, foreign, workers_at_once(trace))}"
    certainty = INFERRED if answer.number("inferred") > 0.5 else EXACT
    topic = f"steps: {kind}"
    weight = answer.value / 100
    return [finding(trace, over, tuple(Scope), topic, answer, sentence, "%", weight, certainty)]


def _of_helpers(trace: Trace, over: Window) -> list[Finding]:
    answer = _ask(trace, f"coalesce(comm, '{_NAMELESS}')", f"kind = '{RUN}' AND tid != step_tid")
    if answer is None:
        return []
    who = name(answer.row["who"])
    sharers = "more workers" if workers_at_once(trace) else "more threads or processes"
    sentence = (
        f"in {percent(answer.value)} of the steps' time, the step waits while another thread of the"
        f" job computes ({percent(answer.number('part'))} of it {who}): let {sharers} share that"
        " work, or make it cheaper"
    )
    weight = answer.value / 100
    return [finding(trace, over, tuple(Scope), "steps: helpers", answer, sentence, "%", weight)]
