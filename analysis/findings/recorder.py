"""Findings about the recorder itself: its CPU time, and lost events."""

from __future__ import annotations

from tracer.analysis.findings.finding import (
    EXACT,
    INFERRED,
    Finding,
    ask,
    finding,
    percent,
    seconds,
)
from tracer.analysis.findings.window import whole
from tracer.probes.loss import OF_EVENTS
from tracer.store.trace import Trace

COST, LOSSES = "own cost", "losses"


def cost(trace: Trace) -> list[Finding]:
    """Returns the recorder's share of all CPUs' time during capture, from the manifest.

    Traces of older versions only have the CPU time of the recorder's whole work, including
    decoding. They give no finding.
    """
    over = whole(trace)
    own, cpus = trace.manifest["own_cost"], trace.manifest["host"].get("cpus")
    used = own.get("capture_cpu_s")
    if over is None or used is None or not cpus:
        return []
    length = (over.end - over.start) / 1e9
    answer = ask(trace, f"SELECT 1e2 * {float(used)!r} / ({length!r} * {cpus}) AS value")
    if answer is None:
        return []
    sentence = (
        f"recording took {percent(answer.value)} of the machine's CPU time"
        f" ({seconds(float(used))} on {cpus} CPUs)"
    )
    return [finding(trace, over, (), COST, answer, sentence, "%", answer.value / 100)]


_IN_BUFFERS = "contains(cause, 'overrun') OR cause = 'buffer full'"
"""SQL condition for the losses that larger buffers prevent."""


def losses(trace: Trace) -> list[Finding]:
    """Returns the share of the recording in which some stream of events has a gap.

    Needs the table loss.
    """
    over = whole(trace)
    if over is None:
        return []
    answer = ask(
        trace,
        "SELECT 100 * sum(greatest(0, b - greatest(a, coalesce(before, a)))) /"
        f" {over.ns} AS value, count(*) AS gaps, sum(events) AS events,"
        " count(*) FILTER (events IS NULL) AS unknown,"
        f" count(*) FILTER ({_IN_BUFFERS}) AS in_buffers"
        " FROM (SELECT a, b, events, cause, max(b) OVER"
        " (ORDER BY a, b ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM"
        f' (SELECT greatest(coalesce("from", {over.start}), {over.start}) AS a,'
        f' least(coalesce("to", {over.end}), {over.end}) AS b, count AS events, cause FROM loss'
        f" WHERE {OF_EVENTS}))",
    )
    if answer is None:
        return []
    gaps, unknown = answer.count("gaps"), answer.count("unknown")
    said = f"{answer.count('events'):,} events"
    if unknown == gaps:
        said = "an unknown number of events"
    elif unknown:
        said = f"more than {said}"
    where = "one gap" if gaps == 1 else f"{gaps:,} gaps"
    mend = "see the causes: tracer info"
    if answer.count("in_buffers"):
        mend = "use a larger buffer, -b, or fewer probes, -e"
    sentence = (
        f"{said} were lost in {where} over {percent(answer.value)} of the recording:"
        f" counts in this time are too low ({mend})"
    )
    certainty = INFERRED if unknown else EXACT
    weight = max(answer.value / 100, 0.01)  # losses affect the other findings, so never last
    made = finding(trace, over, (), LOSSES, answer, sentence, "%", weight, certainty)
    return [made]
