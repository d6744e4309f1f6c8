"""Disks: where a request's time goes, how busy they are, what the jobs read."""

from __future__ import annotations

from analysis.findings.finding import (
    AT_MOST,
    ELSEWHERE,
    FEW_EVENTS,
    Finding,
    ask,
    at_most,
    finding,
    percent,
    seconds,
    size,
)
from analysis.findings.finding import name as named
from analysis.findings.window import Scope, of_jobs, whole, window
from analysis.views.requests import requests
from tracer.store.trace import Trace

_MACHINE = (Scope.MACHINE,)
_HALF = 50.0


def latency(trace: Trace) -> list[Finding]:
    """Of the device and operation that take most time: waiting in the queue against service.

    Needs table block.
    """
    over = whole(trace)
    if over is None:
        return []
    requests(trace)
    answer = ask(
        trace,
        "SELECT 100 * sum(queue_latency_ns) / sum(queue_latency_ns + service_latency_ns) AS value,"
        " dev, operation, count(*) AS requests, avg(queue_latency_ns) / 1e9 AS queue_s,"
        " avg(service_latency_ns) / 1e9 AS service_s,"
        f" sum(queue_latency_ns + service_latency_ns) / {over.ns} AS at_once FROM requests"
        " WHERE queue_latency_ns >= 0 AND service_latency_ns >= 0 GROUP BY dev, operation"
        " ORDER BY sum(queue_latency_ns + service_latency_ns) DESC, dev, operation LIMIT 1",
    )
    if answer is None:
        return []
    queue, service = (seconds(answer.number(one)) for one in ("queue_s", "service_s"))
    sentence = (
        f"a {named(answer.row['operation'], 'request')} on {_disk(trace, answer.row['dev'])} waits"
        f" {queue} in the queue and {service} for the device ({percent(answer.value)} queueing,"
        f" {answer.count('requests'):,} requests)"
    )
    if answer.value >= _HALF:
        sentence += ": requests come faster, or in larger bursts, than the device takes them"
    told = answer.number("requests") >= FEW_EVENTS
    weight = ELSEWHERE * min(1.0, answer.number("at_once")) if told else 0.0
    return [finding(trace, over, _MACHINE, "request latency", answer, sentence, "%", weight)]


def reads(trace: Trace) -> list[Finding]:
    """All the time that requests to read took which threads of the jobs had sent.

    At most, as what they wait for: requests overlap, and read-ahead is not waited for. Needs tables
    block, processes.
    """
    over = window(trace)
    if over is None:
        return []
    requests(trace)
    answer = ask(
        trace,
        "SELECT 100 * least(1, sum(complete_ns - coalesce(queue_ns, issue_ns)) /"
        f" {over.ns}) AS value, count(*) AS requests, sum(nr_sector) * 512 AS bytes"
        f" FROM {of_jobs(trace, 'requests', 'issue_ns')}"
        f" WHERE operation = 'read' AND complete_ns >= issue_ns AND {over.holds('issue_ns')}"
        " HAVING count(*) > 0",
    )
    if answer is None:
        return []
    sentence = (
        f"reading from disks takes {at_most(answer.value)} of {over.what}"
        f" ({answer.count('requests'):,} requests, {size(answer.number('bytes'))})"
    )
    weight = answer.value / 100
    return [finding(trace, over, _MACHINE, "disk reads", answer, sentence, "%", weight, AT_MOST)]


def use(trace: Trace) -> list[Finding]:
    """The busiest disk, where it is busy half of the time or more. Needs table samples."""
    over = whole(trace)
    if over is None:
        return []
    answer = ask(
        trace,
        "SELECT avg(value) AS value, instance FROM samples WHERE name = 'disk_use'"
        " AND target IS NULL AND isfinite(value) GROUP BY instance"
        " ORDER BY avg(value) DESC, instance LIMIT 1",
    )
    if answer is None or answer.value < _HALF:
        return []
    sentence = (
        f"{named(answer.row['instance'], 'a disk')} has a request in flight"
        f" {percent(answer.value)} of the time: what else is to be read or written waits for it"
    )
    weight = ELSEWHERE * answer.value / 100
    return [finding(trace, over, (), "disk use", answer, sentence, "%", weight)]


def _disk(trace: Trace, dev: object) -> str:
    names = {disk.get("dev"): disk.get("name") for disk in trace.manifest.get("disks", [])}
    found = names.get(str(dev))
    said = named(dev, "a disk that is not known")
    return f"{named(found)} ({said})" if found else said
