"""The causes of waiting for data, by the critical paths of the steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracer.analysis.findings.cpu_holders import FOREIGN, OWN, mend_of_cpu_waits
from tracer.analysis.findings.finding import FEW_EVENTS, Answer, ask, name, percent
from tracer.analysis.findings.room import no_time_left
from tracer.analysis.findings.window import Window, is_own
from tracer.analysis.findings.workers import LESS_WORK, more_workers
from tracer.analysis.views.calls_by_kind import LOOKUPS
from tracer.analysis.views.disks.requests import OPERATION
from tracer.analysis.views.disks.volumes import on_devices
from tracer.analysis.views.reading.asked_bios import asked_bios
from tracer.analysis.views.threads import of_everybody, of_threads, owns
from tracer.analysis.views.waiting.critical_path import RUN, critical_path, has_paths
from tracer.analysis.views.waiting.steps import fetches_of_steps
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace

_WORK, READS, _OTHERS = "work", "reads", "others"
CAUSES = f"""
CASE WHEN kind = '{RUN}' THEN '{_WORK}'
    WHEN kind IN ('disk', 'fault') AND call IN {LOOKUPS} THEN 'files'
    WHEN kind IN ('disk', 'fault') THEN '{READS}'
    WHEN kind IN ('cpu', 'throttled', 'reclaim', 'sync', 'dirty', 'lock', 'gpu') THEN kind
    ELSE '{_OTHERS}' END
"""
"""SQL for the cause of a row of `waits` or `critical_path`."""
SAID = {
    _WORK: "spent on work for the samples, such as decoding",
    "files": "spent on opening files and looking them up on a disk",
    READS: "spent on reads of a disk",
    "cpu": "spent waiting for a CPU",
    "throttled": "spent waiting because the cgroup has used up its CPU quota",
    "reclaim": "spent waiting for memory that others have to give up",
    "sync": "spent waiting until data is on a disk",
    "dirty": "spent asleep for having dirtied pages",
    "lock": "spent waiting for a lock",
    "gpu": "spent waiting for the GPU",
    _OTHERS: "spent waiting for others: a timer, a network, another process",
}
"""Words for each cause."""
_MENDS = {
    "files": "pack the samples into fewer files, or read ahead with {workers}",
    "throttled": "raise the quota, or use fewer threads{and_workers}",
    "reclaim": "raise the memory limit, or keep less in memory",
    "sync": "do not make data durable while data is loaded",
    "dirty": "write less at once, or raise the limits of dirty pages",
    "lock": "threads of one Python process run one at a time, so move their work into processes",
    "gpu": "do not wait for the GPU while data is loaded",
}
_COLD = "read ahead with {workers}, or keep the data in memory"
_MORE_WORKERS = "use more workers"
_HALF = 0.5


@dataclass(frozen=True)
class Cause:
    """The main cause of waiting for data: a clause about it, and what to do.

    `inferred`: no events name this cause for most of its time.
    """

    said: str
    mend: str
    inferred: bool = False


def cause_of_data_waits(trace: Trace, over: Window, workers: int) -> Cause | None:
    """Returns what most of the time in which steps wait for data is spent on.

    `workers`: how many processes load data at once. Returns None if the trace does not tell, since
    the scheduler's events were not recorded.
    """
    if not has_paths(trace):
        return None
    critical_path(trace)
    answer = ask(
        trace,
        f"SELECT 100 * sum(dur_ns) / sum(sum(dur_ns)) OVER () AS value, {CAUSES} AS cause,"
        " arg_max(detail, dur_ns) FILTER (kind = 'disk') AS device,"
        " coalesce(sum(dur_ns) FILTER (by_tid IS NULL), 0) / sum(dur_ns) AS nobodys,"
        " coalesce(sum(dur_ns) FILTER (by_tid IS NULL AND certainty = 'exact'), 0) / sum(dur_ns)"
        f" AS idle, coalesce(sum(dur_ns) FILTER ({OWN}), 0) / sum(dur_ns) AS own,"
        f" coalesce(sum(dur_ns) FILTER ({FOREIGN}), 0) / sum(dur_ns) AS others,"
        " coalesce(sum(dur_ns) FILTER (certainty != 'exact'), 0) / sum(dur_ns) AS inferred"
        f" FROM (FROM critical_path WHERE {over.segments}) c"
        f" ASOF JOIN {fetches_of_steps(trace)} f"
        " ON c.step_pid = f.pid AND c.step_tid = f.tid AND c.ts >= f.ts"
        " WHERE c.step_start = f.step_start"
        " GROUP BY cause ORDER BY value DESC, cause LIMIT 1",
    )
    if answer is None:
        return None
    found = _cause(trace, over, workers, answer)
    return replace(found, inferred=answer.number("inferred") > _HALF)


def _cause(trace: Trace, over: Window, workers: int, answer: Answer) -> Cause:
    cause = str(answer.row["cause"])
    said = f"{percent(answer.value)} of it {SAID[cause]}"
    if cause == _WORK:
        return Cause(said, _more_workers_or_less_work(trace, workers))
    if cause == "cpu" and answer.number("nobodys") == 0:
        said += " that another thread has"
    if cause == _OTHERS or (cause == "cpu" and answer.number("idle") > _HALF):
        return Cause(said, _MORE_WORKERS if workers else "load the data with workers")
    if cause == "cpu":
        own, foreign = answer.number("own"), answer.number("others")
        return Cause(said, mend_of_cpu_waits(own, foreign, workers))
    if cause == READS:
        found = _reads(trace, over, said, answer.row["device"])
    else:
        found = Cause(said, _MENDS[cause])
    beside = " and workers" if workers else ""
    return replace(found, mend=found.mend.format(workers=more_workers(workers), and_workers=beside))


def _more_workers_or_less_work(trace: Trace, workers: int) -> str:
    less = f"{LESS_WORK}, or keep its result, since"
    if (full := no_time_left(trace)) is not None:
        return f"{less} {full.said}"
    if not workers:
        return "set num_workers of the DataLoader"
    # The training thread needs a CPU, too.
    idle = int(trace.manifest["host"].get("cpus") or 0) - workers - 1
    if idle > 0:
        return _MORE_WORKERS
    return f"{less} the machine has no CPUs beyond those of workers and training"


def _reads(trace: Trace, over: Window, said: str, device: object) -> Cause:
    if of_everybody(trace):
        # Nothing tells the training's programs from others.
        return Cause(said, _COLD)
    own = is_own(trace, over)
    if _memory_is_short(trace, over, own):
        return Cause(
            f"{said}, while the memory limit makes the job give up pages that it reads again",
            "raise the memory limit, or read less data",
        )
    other, share = _others_on_disk(trace, over, device, own)
    if share > _HALF:
        return Cause(
            f"{said}; {percent(100 * share)} of what the disk did was for others ({other})",
            "give the data a disk of its own, or limit the others",
        )
    return Cause(said, _COLD)


def _memory_is_short(trace: Trace, over: Window, own: str) -> bool:
    if "reclaim" not in trace.tables:
        return False
    rows = of_threads("reclaim", f"job AND {own}")
    found = f"FROM {rows} WHERE event = 'memcg_begin' AND {over.holds()}"
    return int(trace.rows(f"SELECT count(*) {found}")[0][0]) >= FEW_EVENTS


def _others_on_disk(trace: Trace, over: Window, device: object, own: str) -> tuple[str, float]:
    """Returns who else used a disk most, and the share of its bytes that was for others."""
    if "block" not in trace.tables or device is None:
        return "", 0.0
    flushes(trace)
    on_disk = on_devices(trace, [str(device)], whole=True)
    (row,) = trace.rows(
        f"""
        WITH used AS (
            SELECT coalesce(d.comm, f.comm) AS comm, f.nr_sector AS sectors,
                if(f.target IS NULL, f.whose IS NOT DISTINCT FROM 'other', NOT {own}) AS other
            FROM flushes f LEFT JOIN (
                SELECT pid, any_value(comm) AS comm FROM threads WHERE pid = tid GROUP BY pid
            ) d ON f.dirtier = d.pid
            WHERE NOT f.own AND {over.holds("f.ts")} AND {on_disk}
            UNION ALL
            -- The thread that issues a request need not be the one that reads. Reads by threads of
            -- the kernel are nobody's unless it is known who asked for them.
            SELECT b.comm, b.nr_sector, o.tid IS NULL
            FROM {asked_bios(trace)} b LEFT JOIN (
                SELECT * FROM threads WHERE job AND {own} OR kernel
            ) o ON {owns("o", "b")}
            WHERE {OPERATION} = 'read' AND b.nr_sector > 0
                AND {over.holds("b.ts")} AND {on_disk}
        )
        SELECT (SELECT comm FROM used WHERE other GROUP BY comm ORDER BY sum(sectors) DESC LIMIT 1),
            coalesce(sum(sectors) FILTER (other) / sum(sectors), 0) FROM used
        """
    )
    return name(row[0], "an unknown process"), float(row[1])
