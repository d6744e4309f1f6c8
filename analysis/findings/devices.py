"""Findings about disks: request latency, use, and the jobs' reads."""

from __future__ import annotations

from tracer.analysis.findings.finding import (
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
from tracer.analysis.findings.finding import name as named
from tracer.analysis.findings.window import Scope, joined, whole, window
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.disks.rest_queues import REST_QUEUES
from tracer.analysis.views.disks.volumes import requests_on_one_level
from tracer.analysis.views.reading.asked_bios import asked_bios
from tracer.analysis.views.threads import of_threads
from tracer.digits import counted
from tracer.store.trace import Trace

_MACHINE = (Scope.MACHINE,)
_HALF = 50.0
_HELD_BACK = ", without the time for which a limit on the speed of a disk holds reads back"

# A thread of the kernel may issue a request that another one has queued. No bio is queued for the
# rest of a split one, but the rest waits since the whole bio does.
_ASKED = """(
    SELECT coalesce(b.pid, r.pid) AS pid, coalesce(b.tid, r.tid) AS tid, r.operation, r.nr_sector,
        coalesce(r.queued, r.insert_ns, r.issue_ns) AS since, r.issue_ns, r.complete_ns AS until,
        coalesce(b.held_back, false) AS held_back
    FROM (
        SELECT o.*, coalesce(o.queue_ns, q.queue_ns) AS queued,
            if(o.queue_ns IS NULL, q.sector, o.sector) AS bio_sector
        FROM (FROM requests WHERE {once}) o LEFT JOIN rest_queues q ON o.row = q.row
    ) r LEFT JOIN (
        SELECT ts, sector, any_value(pid) AS pid, any_value(tid) AS tid,
            bool_or(held_back) AS held_back
        FROM {bios} GROUP BY ALL
    ) b ON r.queued = b.ts AND r.bio_sector = b.sector
)"""


def latency(trace: Trace) -> list[Finding]:
    """Returns the share of queueing for the device and operation with the most request time.

    Needs the table block.
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
    many = counted(answer.count("requests"), "request")
    sentence = (
        f"on average, {_a(named(answer.row['operation'], 'request'))} on"
        f" {_disk(trace, answer.row['dev'])} waits {queue} in the queue and {service} for the"
        f" device ({percent(answer.value)} queueing, {many})"
    )
    if answer.value >= _HALF:
        sentence += ": requests come faster, or in larger bursts, than the device can serve them"
    told = answer.number("requests") >= FEW_EVENTS
    weight = ELSEWHERE * min(1.0, answer.number("at_once")) if told else 0.0
    return [finding(trace, over, _MACHINE, "request latency", answer, sentence, "%", weight)]


def _a(operation: str) -> str:
    """Returns the name of a request with its article."""
    if operation == "other":
        return "a request that neither reads nor writes"
    return f"an {operation}" if operation[:1] in "aeiou" else f"a {operation}"


def reads(trace: Trace) -> list[Finding]:
    """Returns the time in which a read that the jobs' threads asked for was queued or in service.

    It is an upper bound on their waiting time, because nobody waits for read-ahead. The rest of a
    split read is queued since the whole read is. A read by a thread of the kernel counts, too,
    unless it is known to be for others. One without a recorded completion lasts until the end of
    the recording. The time for which a read is held back before it is queued does not count, nor
    that between two trainings. If several jobs train at once, the time is the sum over their
    processes. Needs the tables block and processes.
    """
    over = window(trace)
    if over is None:
        return []
    REST_QUEUES.make(trace)
    asked = _ASKED.format(bios=asked_bios(trace), once=requests_on_one_level(trace, None))
    rows = (
        f"(SELECT *, since AS ts, coalesce(until, {over.recorded}) AS upto, upto - since AS long"
        f" FROM {of_threads(asked, 'job OR kernel', ts='since')}"
        f" WHERE operation = 'read' AND coalesce(until, {over.recorded}) >= issue_ns)"
    )
    union = joined("FROM reading", "pid" if over.jobs > 1 else "")
    lasting = f"(SELECT since AS ts, upto - since AS long FROM ({union}))"
    answer = ask(
        trace,
        f"WITH reading AS MATERIALIZED {rows}"
        f" SELECT 100 * least(1, (SELECT sum(inside) FROM {over.inside(lasting, 'long')})"
        f" / {over.ns}) AS value, count(*) AS requests, sum(nr_sector) * 512 AS bytes,"
        " count(*) FILTER (tid IN (SELECT tid FROM threads WHERE kernel)) AS by_kernel,"
        " count(*) FILTER (held_back) AS held_back"
        f" FROM {over.inside('reading', 'long')} WHERE inside > 0 HAVING count(*) > 0",
    )
    if answer is None:
        return []
    unknown, held_back = answer.count("by_kernel"), answer.count("held_back")
    perhaps = f"; {unknown:,} by threads of the kernel, perhaps for others" if unknown else ""
    many = counted(answer.count("requests"), "request")
    sentence = (
        f"reading from disks takes {at_most(answer.value)} of {over.what}"
        f" ({many}, {size(answer.number('bytes'))}{perhaps})"
    )
    if held_back:
        sentence += _HELD_BACK
    weight = answer.value / 100
    return [finding(trace, over, _MACHINE, "disk reads", answer, sentence, "%", weight, AT_MOST)]


def use(trace: Trace) -> list[Finding]:
    """Returns the use of the busiest disk if it is at least 50 %. Needs the table samples."""
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
        f"{named(answer.row['instance'], 'a disk')} has a request in flight for"
        f" {percent(answer.value)} of the time (a disk that serves several at once may have room)"
    )
    weight = ELSEWHERE * answer.value / 100
    return [finding(trace, over, (), "disk use", answer, sentence, "%", weight)]


def _disk(trace: Trace, dev: object) -> str:
    names = {disk.get("dev"): disk.get("name") for disk in trace.manifest.get("disks", [])}
    found = names.get(str(dev))
    said = named(dev, "an unknown disk")
    return f"{named(found)} ({said})" if found else said
