"""Recordings of the whole machine, and traces that name no target: they are everybody's."""

import pytest

from tests.support import page_events
from tests.support.findings import S, call, off, pause, phase
from tests.support.page_events import JOB, MIB, PAGE, PEER, PageEvents
from tests.support.traces import make_trace
from tracer.analysis.compare.measured import MACHINES_PAGES, TARGETS_PAGES, measured
from tracer.analysis.explain.explanation import explain
from tracer.analysis.findings.catalogue import findings
from tracer.analysis.findings.ceiling import ceiling
from tracer.analysis.findings.window import window
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.words import basis
from tracer.analysis.report.by_phase import by_phase
from tracer.analysis.report.gathered import gather
from tracer.analysis.report.writeback import flushed_pages
from tracer.analysis.timeline.axis import Axis
from tracer.analysis.timeline.reads import page_cache_lanes
from tracer.analysis.views.threads import name_of_others
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.analysis.views.waiting.stalls import STALLS
from tracer.analysis.views.waiting.waits import waits
from tracer.store.trace import Trace

MACHINE = {"name": "machine", "role": "target", "kind": "machine", "pid": 0}
ONE = {"name": "job", "role": "target", "kind": "pid", "pid": 7}
DAEMON = {"name": "docker", "role": "daemon", "kind": "daemon", "pid": 5}
KERNEL, FLUSHER, DOCKERD, POSTGRES = 40, 50, 5, 9
CLOCK = {"name": "mono", "start_ns": 0, "end_ns": 100 * S}
PROGRAMS = [
    {"pid": 7, "tid": 7, "ppid": 1, "role": "other", "comm": "python"},
    {"pid": 7, "tid": 8, "ppid": 1, "role": "other", "comm": "idle thread"},
    {"pid": POSTGRES, "tid": POSTGRES, "ppid": 1, "role": "other", "comm": "postgres",
     "end_ns": 60 * S},
    # The number of postgres goes to a thread of the kernel.
    {"pid": POSTGRES, "tid": POSTGRES, "ppid": 2, "role": "other", "comm": "kworker/0:1",
     "start_ns": 70 * S},
    {"pid": KERNEL, "tid": KERNEL, "ppid": 2, "role": "other", "comm": "loop0"},
    {"pid": FLUSHER, "tid": FLUSHER, "ppid": 2, "role": "flusher", "comm": "kworker/u8:1"},
]  # fmt: skip
OF_JOB = [
    {**one, "role": "target", "target": "job"} if one["pid"] == 7 else one for one in PROGRAMS
]
WITH_DAEMON = [
    *PROGRAMS,
    {"pid": DOCKERD, "tid": DOCKERD, "ppid": 1, "role": "daemon", "target": "docker",
     "comm": "dockerd"},
]  # fmt: skip
EVENTS = {
    "syscalls": [
        call("fsync", 10, 5, 7), call("fsync", 20, 3, POSTGRES), call("fsync", 80, 9, POSTGRES),
        call("fsync", 85, 2, DOCKERD),
    ],
    "dirty": [
        pause(30, 4, 7), pause(40, 2, POSTGRES), pause(75, 1, KERNEL), pause(90, 8, POSTGRES),
    ],
    "page_faults": [
        {"ts": S, "pid": pid, "tid": pid, "kind": "minor", "user": True} for pid in (7, 7, POSTGRES)
    ],
}  # fmt: skip


def trace_of(folder, targets, processes=PROGRAMS, **tables) -> Trace:
    made = {"processes": processes, **EVENTS, **tables}
    return make_trace(folder, made, clock=CLOCK, targets=targets)


@pytest.mark.parametrize(
    ("targets", "processes", "synced", "stalled", "faults"),
    [
        ([MACHINE], PROGRAMS, 8, 6, 3),
        ([], PROGRAMS, 8, 6, 3),
        ([MACHINE, ONE], OF_JOB, 8, 6, 3),
        ([MACHINE, DAEMON], WITH_DAEMON, 8, 6, 3),
        ([ONE], OF_JOB, 5, 4, 2),
    ],
    ids=["machine", "no target", "machine and job", "machine and daemon", "job"],
)
def test_all_programs_count_and_threads_of_the_kernel_do_not(
    tmp_path, targets, processes, synced, stalled, faults
):
    with trace_of(tmp_path / "t", targets, processes) as trace:
        frame = measured(trace).frame.set_index(["topic", "measure"])["value"]
        bound = ceiling(trace)
        found = {one.topic: one for one in findings(trace)}
        rows = STALLS.frame(trace, "kind IN ('sync', 'throttle')", ["tid", "kind", "dur_ns"])
    assert frame["syncs", "fsync and the like"] == synced
    assert frame["stalls", "write-back stalls"] == stalled
    assert frame["page faults", "all"] == faults
    assert bound.by_kind["sync"] == synced and bound.by_kind["throttle"] == stalled
    assert bound.total_s == synced + stalled
    assert found["write waits"].value == bound.percent == pytest.approx(synced + stalled)
    assert "threads without any system call (1)" in bound.left_out
    assert found["sync"].value == synced and found["stalls"].value == stalled
    everybody = targets != [ONE]
    assert ("whichever program" in found["write waits"].sentence) is everybody
    assert ("of the job to sleep" not in found["stalls"].sentence) is everybody
    of_daemon = rows["tid"] == DOCKERD  # `stalls` has its waits as a target's
    assert rows.loc[~of_daemon, "dur_ns"].sum() == (synced + stalled) * S


def test_waits_and_paths_go_through_every_program(tmp_path):
    steps = [
        phase("train", 0, 100, 7),
        {"pid": 7, "tid": 7, "name": "step", "start": 10 * S, "end": 20 * S, "step": 0},
    ]
    away = [off(12, 4, 7, waker=POSTGRES), off(50, 1, KERNEL, waker=0)]
    for number, targets in enumerate(([MACHINE], [])):
        folder = tmp_path / str(number)
        with trace_of(folder, targets, phases=steps, off_cpu=away, syscalls=[]) as trace:
            tids = trace.rows(f"SELECT tid FROM {waits(trace)} ORDER BY tid")
            path = trace.rows(f"SELECT tid, kind, dur_ns FROM {critical_path(trace)} ORDER BY ts")
            found = explain(trace)
            by = by_phase(trace, "phase")
        assert [tid for (tid,) in tids] == [7, KERNEL]
        assert path == [(7, "run", 2 * S), (POSTGRES, "run", 4 * S), (7, "run", 4 * S)]
        assert (found.processes, found.unknown_share) == (1, 0)
        # Postgres marks no phase, and is no thread of the kernel, though one has its number later.
        assert by.loc[by["phase"] == "train", "stall_s"].tolist() == [4]


@pytest.mark.parametrize(
    ("targets", "processes"),
    [
        ([], OF_JOB),
        ([], [{**one, "role": "target"} if one["pid"] == 7 else one for one in PROGRAMS]),
        ([ONE], [*OF_JOB, {**OF_JOB[0], "target": "twin"}]),
    ],
    ids=["targets of processes alone", "roles alone", "a thread of two targets"],
)
def test_waits_are_those_of_targets_if_anything_names_one(tmp_path, targets, processes):
    away = [
        off(12, 4, 7, waker=POSTGRES), off(20, 4, POSTGRES, waker=7), off(50, 1, KERNEL, waker=0)
    ]  # fmt: skip
    with trace_of(tmp_path / "t", targets, processes, off_cpu=away) as trace:
        found = trace.rows(f"SELECT ts, tid FROM {waits(trace)}")
    assert found == [(12 * S, 7)]


def written(pid, page, pages=1):
    ts = 20 * S + page
    at = {"pid": pid, "tid": pid, "dev": "8:0"}
    return (
        {**at, "ts": ts, "event": "dirty_folio", "ino": pid, "index": 0},
        {**at, "ts": ts + 1, "event": "fsync", "ino": pid},
        {**at, "ts": ts + 2, "event": "bio_queue", "sector": 8 * page, "nr_sector": 8 * pages,
         "rwbs": "WS"},
    )  # fmt: skip


@pytest.mark.parametrize("targets", [[MACHINE], []])
def test_pages_of_targets_are_not_known_and_not_0(tmp_path, targets):
    rows = [written(7, 100, 2), written(POSTGRES, 300, 3)]
    dirty, files, block = ([*part] for part in zip(*rows, strict=True))
    with trace_of(tmp_path / "t", targets, dirty=dirty, file_writes=files, block=block) as trace:
        table = flushed_pages(trace)
        found = measured(trace)
        layer = page_writebacks(trace)
    assert table["pages"].sum() == 5 and table["target_pages"].isna().all()
    assert TARGETS_PAGES in found.whys
    assert found.frame.set_index(["topic", "measure"])["value"][MACHINES_PAGES, "all"] == 5
    (said,) = layer.writers.said()
    assert layer.writers.pages == 5 and "known to be the targets'" not in said


def of_programs(rows):
    """Rows of processes without their targets; threads of the kernel stay such."""
    return [{**one, "role": "other", "target": None} for one in rows]


def shared_reads():
    """Two epochs of a job beside another program: 64 pages of one, and 10 of the other."""
    made = PageEvents()
    for epoch in range(2):
        for at in range(0, 64, 8):
            made.read(at, 8)
        made.read(100, 10, 99, PEER)
        made.end_epoch(epoch)
    return made


def predicted(folder, targets, processes, samples=()):
    made = shared_reads()
    tables = {**made.tables, "processes": processes, "samples": list(samples)}
    with make_trace(folder, tables, clock=made.clock, targets=targets) as trace:
        return answer_memory(trace, [32 * PAGE, 1 << 40], read_ahead=0)


@pytest.mark.parametrize(
    ("targets", "name"), [([MACHINE], "machine"), ([], "all processes")], ids=["machine", "none"]
)
def test_the_machine_has_one_page_cache(tmp_path, targets, name):
    processes = of_programs(page_events.PROCESSES)
    found = predicted(tmp_path / "t", targets, processes)
    small = found.reads[found.reads["memory_bytes"] == 32 * PAGE]
    large = found.reads[found.reads["memory_bytes"] > 32 * PAGE]
    assert set(found.reads["target"]) == {name}
    # Only the job's process marks epochs, so the other's reads, 10 pages twice, are in none.
    assert found.reads["used_pages"].tolist() == [20, 64, 64] * 2
    assert small["recorded_pages"].tolist() == large["lru_pages"].tolist() == [10, 64, 0]
    assert small["lru_pages"].tolist() == [20, 64, 64]
    assert found.enough_bytes == {name: 74 * PAGE} and found.own_bytes == {name: None}
    assert found.error == {name: 0} and found.marked_together == {}


def test_the_machine_s_own_memory_is_sampled_and_named_targets_have_theirs(tmp_path):
    samples = [
        page_events.sample(None, "memory_used", 5 * MIB),
        page_events.sample(None, "memory_used", 9 * MIB, 2000),
        page_events.sample(None, "page_cache", 99 * MIB),
    ]
    processes = of_programs(page_events.PROCESSES)
    found = predicted(tmp_path / "a", [MACHINE], processes, samples=samples)
    assert found.own_bytes == {"machine": 9 * MIB}
    job = [page_events.PROCESSES[0], *processes[1:]]
    beside = predicted(tmp_path / "b", [MACHINE, *page_events.ONE], job, samples=samples)
    assert beside.own_bytes == {"job": None, "machine": None}
    assert beside.enough_bytes == {"job": 64 * PAGE, "machine": 10 * PAGE}
    with make_trace(tmp_path / "c", {}, targets=[MACHINE, {**ONE, "name": "machine"}]) as trace:
        assert name_of_others(trace) == "machine (others)"


def test_reads_of_the_machine_are_found_and_drawn(tmp_path):
    made = PageEvents()
    for epoch in range(3):
        for at in range(0, 512, 8):
            made.read(at, 8)
        made.evict(range(512))
        made.end_epoch(epoch)
    processes = of_programs(page_events.PROCESSES)
    for number, targets in enumerate(([MACHINE], [])):
        tables = {**made.tables, "processes": processes}
        with make_trace(tmp_path / str(number), tables, clock=made.clock, targets=targets) as trace:
            found = {one.topic: one for one in findings(trace)}
            lanes = page_cache_lanes(trace, Axis(0, made.now, made.now // 2))
            name = name_of_others(trace)
        assert found["reads again"].value == 100
        assert f"each epoch of {name} after the first" in found["reads again"].sentence
        assert "2.0 MiB of page cache would keep them" in found["reads again"].sentence
        assert lanes[0].frame["missed"].sum() > 0 and set(lanes[1].frame["series"]) == {name}


def two_trainings():
    """Steps of 10 ms of one program, and of 100 ms of another, at the same time."""
    phases = []
    for pid, length in ((JOB, S // 100), (PEER, S // 10)):
        mark = {"pid": pid, "tid": pid, "epoch": 0}
        phases.append({**mark, "name": "train", "start": S, "end": S + 4 * length})
        phases.append({**mark, "name": "epoch", "start": S, "end": S + 4 * length})
        phases += [
            {**mark, "name": "step", "step": n, "start": S + n * length,
             "end": S + (n + 1) * length}
            for n in range(4)
        ]  # fmt: skip
    return phases


def test_two_trainings_of_a_recording_are_said_to_count_together(tmp_path, tracer):
    phases = sorted(two_trainings(), key=lambda one: one["start"])
    processes = of_programs(page_events.PROCESSES)
    syscalls = [call("fsync", 1.001, 0.004, JOB), call("fsync", 1.5, 9, page_events.OTHER)]
    made = shared_reads()
    tables = {
        "processes": processes, "phases": phases, "off_cpu": [], "syscalls": syscalls, "dirty": [],
        "page_cache": made.events,
    }  # fmt: skip
    with make_trace(tmp_path / "t", tables, targets=[MACHINE], clock=CLOCK) as trace:
        found = explain(trace, by="thread")
        over = window(trace)
        length = trace.rows(f"SELECT {over.ns}")[0][0]
        bound = ceiling(trace)
        notes = gather(trace).notes
        answer = answer_memory(trace, [1 << 40])
        compared = measured(trace)
    assert (found.steps, found.processes) == (8, 2)
    assert {part.group["tid"]: part.ns for part in found.parts} == {
        JOB: 4 * S // 100, PEER: 4 * S // 10,
    }  # fmt: skip
    assert (over.jobs, length) == (2, 44 * S // 100)
    # An fsync of 4 ms lies in both trainings; that of the third program after them in none.
    assert bound.total_s == 0.008 and bound.length_s == 0.44
    assert any("the steps of 2 processes are counted together" in note for note in notes)
    assert any("2 processes mark epochs of the same numbers" in note for note in notes)
    assert answer.marked_together == {"machine": 2}
    assert any("machine: 2 processes mark epochs" in said for said in basis(answer))
    assert any("means over several processes" in note for note in compared.notes)
    assert any("the whole machine was recorded" in note for note in compared.notes)
    text = " ".join(tracer("explain", tmp_path / "t", "--by", "thread").out.split())
    assert "They are those of 2 processes together" in text
    assert f"Step 0:0 of process {PEER} took 100 ms" in text
    assert f"the step's thread {JOB}" in text and f"the step's thread {PEER}" in text


def test_the_advice_on_waiting_for_data_blames_nobody(tmp_path):
    training, database = {"pid": 7, "tid": 7}, {"pid": POSTGRES, "tid": POSTGRES}
    phases = [
        phase("train", 0, 100, 7),
        phase("step", 10, 20, 7, step=0),
        phase("fetch", 10, 15, 7, step=0),
    ]
    block = [
        {**who, "ts": int((at + more) * S), "event": event, "dev": "254:0", "rwbs": "R",
         "sector": int(at * 8000), "nr_sector": sectors}
        for more, event in ((0, "bio_queue"), (0.001, "issue"), (0.5, "complete"))
        for at, who, sectors in ((10.9, training, 8), (11, database, 80))
    ]  # fmt: skip
    tables = {
        "phases": phases, "block": sorted(block, key=lambda one: one["ts"]),
        "syscalls": [call("read", 10.8, 3.5, 7)],
        "off_cpu": [off(11, 3, 7, "D", waker=0)],
        "reclaim": [{**database, "ts": 12 * S + n, "event": "memcg_begin"} for n in range(30)],
    }  # fmt: skip
    with trace_of(tmp_path / "t", [MACHINE], **tables) as trace:
        (one,) = [one for one in findings(trace) if one.topic == "data loading"]
    assert "60 % of it spent on reads of a disk: read ahead with workers" in one.sentence
