"""The time over which findings compute shares: the training, or else the whole recording."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.views.phases.phase_times import make_phase_times
from tracer.analysis.views.threads import make_threads, of_threads, owns
from tracer.probes.loss import OF_EVENTS
from tracer.probes.schema import Scope
from tracer.store.manifest import with_all_events
from tracer.store.trace import Trace

__all__ = [
    "ALL",
    "WAITING_TARGETS",
    "Scope",
    "Window",
    "is_own",
    "joined",
    "lossy",
    "lost_between",
    "of_jobs",
    "whole",
    "window",
]

_STAGES = {"train": "training time", "inference": "inference time"}
_FOREVER = (1 << 63) - 1

WAITING_TARGETS = "waiting_targets"
"""The table of the targets whose steps wait for the data: target. `is_own` makes it."""
_TARGETS = f"""
CREATE OR REPLACE TEMP TABLE {WAITING_TARGETS} AS
SELECT DISTINCT o.target FROM steps s JOIN threads o ON {owns("o", "s", "pid", "start")}
WHERE o.job AND o.target IS NOT NULL AND {{steps}}
"""
ALL = "true"
"""SQL condition that holds for all targets."""


def joined(rows: str, of: str = "") -> str:
    """Returns SQL for the times in which any row lasts: since, upto; those that overlap are one.

    `rows`: SQL for rows with since and upto. `of`: a column; rows of different values stay apart.
    """
    keys, part = (f"{of}, ", f"PARTITION BY {of} ") if of else ("", "")
    order = f"OVER ({part}ORDER BY since, upto ROWS BETWEEN UNBOUNDED PRECEDING AND"
    return (
        f"SELECT {keys}min(since) AS since, max(upto) AS upto FROM (SELECT *, sum(apart)"
        f" {order} CURRENT ROW) AS number FROM (SELECT *, coalesce(since > max(upto) {order}"
        f" 1 PRECEDING), true)::INT AS apart FROM ({rows}))) GROUP BY {keys}number"
    )


@dataclass(frozen=True)
class Window:
    """A stretch of time.

    `what`: its name in a sentence. `stage`: its phase, "" for the whole recording. `start` and
    `end` (ns): its first and last moment. `ns`: SQL for its length; if several jobs train at once,
    the sum of their lengths. If `start` to `end` is longer than `ns`, sums over the window are too
    high, never too low. `begun` and `recorded` (ns): the times between which events of targets are
    recorded. `jobs`: the number of processes in that stage; 1 for the whole recording.
    """

    what: str
    stage: str
    start: int
    end: int
    ns: str
    begun: int
    recorded: int
    jobs: int = 1

    def holds(self, ts: str = "ts") -> str:
        """Returns an SQL condition: a time lies in the window."""
        return f"{ts} BETWEEN {self.start} AND {self.end}"

    @property
    def stretches(self) -> str:
        """SQL for the times in which a thread is in the stage: tid, since, upto (excluded).

        Those of a thread that overlap are one. Needs a stage, and the view `phase_times`.
        """
        return self._stages("tid")

    def inside(self, rows: str, long: str) -> str:
        """Returns SQL for rows with one more column, inside (ns): their time in the stage.

        The time of a row is that from its `ts` to `ts + long`. It counts while some thread is in
        the stage, or, if there is none, while the recording lasts. Needs the view `phase_times`.
        """
        always = f"SELECT {self.start} AS since, {self.end} AS upto"
        stages = self._stages() if self.stage else always
        summed = f"SELECT *, sum(upto - since) OVER (ORDER BY since) AS summed FROM ({stages})"
        upto = f"least(c.ts::HUGEINT + c.{long}, {self.end})::BIGINT"

        def before(at: str, stage: str) -> str:
            return f"coalesce({stage}.summed - greatest(0, {stage}.upto - {at}), 0)"

        return (
            f"(SELECT c.*, {before(upto, 'b')} - {before('c.ts', 'a')} AS inside FROM {rows} c"
            f" ASOF LEFT JOIN ({summed}) a ON c.ts >= a.since"
            f" ASOF LEFT JOIN ({summed}) b ON {upto} >= b.since)"
        )

    def _stages(self, of: str = "") -> str:
        """Returns SQL for the times of the stage: since, upto. Those with the same `of` merge."""
        keys = f"{of}, " if of else ""
        since = f"greatest(start, {self.start})"
        upto = f"least(coalesce(until, {self.end}), {self.end})"
        return joined(
            f"SELECT {keys}{since} AS since, {upto} AS upto FROM phase_times"
            f" WHERE name = '{self.stage}' AND {upto} > {since}",
            of,
        )

    @property
    def steps(self) -> str:
        """SQL condition: a step of the stage began in the window, with all events of its time."""
        stage = f"stage = '{self.stage}' AND " if self.stage else ""
        begun = max(self.start, self.begun)
        return f'{stage}total_ns > 0 AND start >= {begun} AND "end" <= {self.recorded}'

    @property
    def segments(self) -> str:
        """SQL condition: a row of the view `critical_path` is of a step for which `steps` holds.

        Needs the views `critical_path` and `steps`.
        """
        selected = f"SELECT (pid, tid, start) FROM steps WHERE {self.steps}"
        return f"(step_pid, step_tid, step_start) IN ({selected})"


def window(trace: Trace) -> Window | None:
    """Returns the training time of the jobs, else their inference time, else the whole recording.

    Returns None if the recording has no length.
    """
    return trace.once("window", lambda: _window(trace))


def _window(trace: Trace) -> Window | None:
    recording = whole(trace)
    if recording is None or "phases" not in trace.tables:
        return recording
    make_phase_times(trace)
    begun, ended = max(recording.start, recording.begun), recording.recorded
    last = f"coalesce(until, {ended})"
    within = f"start < {ended} AND {last} > {begun} AND {last} > start"
    found = trace.sql(
        f"SELECT name, min(greatest(start, {begun}))::BIGINT AS start,"
        f" max(least({last}, {ended}))::BIGINT AS ended, count(DISTINCT pid) AS jobs"
        f" FROM phase_times WHERE name IN {tuple(_STAGES)} AND {within} GROUP BY name"
        f" ORDER BY name != 'train' LIMIT 1"
    )
    if not len(found):
        return recording
    stage = str(found["name"].iloc[0])
    ns = (
        f"(SELECT sum(least({last}, {ended}) - greatest(start, {begun})) FROM phase_times"
        f" WHERE name = '{stage}' AND {within})"
    )
    start, end = int(found["start"].iloc[0]), int(found["ended"].iloc[0])
    jobs = max(1, int(found["jobs"].iloc[0]))
    return Window(_STAGES[stage], stage, start, end, ns, begun, ended, jobs)


def whole(trace: Trace) -> Window | None:
    """Returns the whole recording, or None if it has no length."""
    clock = trace.manifest["clock"]
    start, end = int(clock["start_ns"]), clock["end_ns"]
    if end is None or int(end) <= start:
        return None
    begun, until = with_all_events(trace.manifest)
    recorded = int(end) if until is None else min(int(end), until)
    return Window("the recording", "", start, int(end), str(int(end) - start), begun, recorded)


def of_jobs(trace: Trace, table: str, ts: str = "ts") -> str:
    """Returns SQL for the rows of a table that are the jobs' threads', not a Docker daemon's.

    They are those of all programs if the whole machine was recorded or the trace names no target.
    `ts` is the table's column of time.
    """
    make_threads(trace)
    return of_threads(table, "job", ts=ts)


def is_own(trace: Trace, over: Window) -> str:
    """Returns an SQL condition: steps of a target (column `target`) wait for the data.

    A target that is not known may be one. If no process of the steps has a known target, all may,
    and the condition is `ALL`. Needs the view `steps`.
    """
    make_threads(trace)
    known = trace.create(_TARGETS.format(steps=over.steps))
    return f"coalesce(target IN (FROM {WAITING_TARGETS}), true)" if known else ALL


def lossy(trace: Trace, window: Window, scopes: tuple[Scope, ...]) -> bool:
    """Returns whether events of these scopes, or of a stream without a scope, were lost in it.

    Without scopes the result is False: marks and samples are not kernel events. Missing names are
    no lost events either.
    """
    if not scopes:
        return False
    trace.empty_if_missing("loss")
    any_gap = f"SELECT 1 FROM loss WHERE {OF_EVENTS} LIMIT 1"
    if not trace.once("events were lost", lambda: trace.rows(any_gap)):
        return False
    others = [scope.value for scope in Scope if scope not in scopes]
    elsewhere = "".join(f" AND NOT contains(stream, '{other}')" for other in others)
    frame = trace.sql(
        f"SELECT count(*) AS gaps FROM loss WHERE {OF_EVENTS}"
        f" AND {lost_between(str(window.start), str(window.end))}{elsewhere}"
    )
    return bool(frame["gaps"].iloc[0])


def lost_between(start: str, end: str) -> str:
    """Returns an SQL condition: a row of the table `loss` lasts at a time from start to end."""
    return f'coalesce("from", 0) <= {end} AND coalesce("to", {_FOREVER}) >= {start}'
