"""Rows of a loader's workers, which mark their own fetches, in the epochs of their job."""

from __future__ import annotations

from tests.support.traces import make_trace
from tracer.analysis.views.catalogue import VIEWS
from tracer.analysis.views.in_phase import IN_PHASE, in_phase
from tracer.store.trace import ALL_TABLES

JOB, OTHER, WORKER = 7, 8, 20


def phase(pid, name, start, end, **more):
    return {"pid": pid, "tid": pid, "name": name, "start": start, "end": end, **more}


def job(pid, shift=0):
    """Two epochs of 100 ns, with a step in each."""
    return [
        phase(pid, "train", shift, shift + 200),
        *(
            phase(pid, name, shift + 100 * n, shift + 100 * (n + 1), **more)
            for n in (0, 1)
            for name, more in (("epoch", {"epoch": n}), ("step", {"epoch": n, "step": n}))
        ),
    ]


def fetches(pid, *starts, **more):
    return [phase(pid, "fetch", start, start + 10, **more) for start in starts]


def process(pid, ppid=None, target="job"):
    return {"pid": pid, "tid": pid, "ppid": ppid, "comm": "python", "role": "child",
            "target": target}  # fmt: skip


def placed(folder, phases, processes, *rows):
    """Returns phase, stage, epoch and step of calls, each given as (pid, ts)."""
    calls = [{"ts": ts, "pid": pid, "tid": pid, "name": "read", "dur_ns": 1} for pid, ts in rows]
    tables = {"phases": phases, "syscalls": calls}
    if processes is not None:
        tables["processes"] = processes
    with make_trace(folder / "t", tables) as trace:
        view = in_phase(trace, "syscalls")
        return trace.rows(f"SELECT phase, stage, epoch, step FROM {view} ORDER BY ts, pid")


def test_a_worker_is_in_the_epoch_of_its_job_and_in_its_own_phase(tmp_path):
    found = placed(
        tmp_path, job(JOB) + fetches(WORKER, 20, 130), [process(JOB), process(WORKER, JOB)],
        (WORKER, 25), (WORKER, 50), (WORKER, 135), (WORKER, 250),
    )  # fmt: skip
    assert found == [
        ("fetch", "train", 0, 0),
        (None, "train", 0, 0),
        ("fetch", "train", 1, 1),
        (None, None, None, None),
    ]


def test_a_worker_belongs_to_its_parent_of_several_jobs(tmp_path):
    phases = job(JOB) + job(OTHER, -100) + fetches(WORKER, 20) + fetches(21, 20)
    processes = [process(JOB), process(OTHER), process(WORKER, JOB), process(21, OTHER)]
    found = placed(tmp_path, phases, processes, (WORKER, 25), (21, 26))
    assert found == [("fetch", "train", 0, 0), ("fetch", "train", 1, 1)]


def test_a_worker_whose_threads_are_of_two_targets_still_has_its_parent(tmp_path):
    phases = job(JOB) + job(OTHER, -100) + fetches(WORKER, 20)
    worker = process(WORKER, OTHER, target="a")
    processes = [
        process(JOB, target="a"), process(OTHER, target="b"),
        worker, worker | {"tid": 21, "target": "c"},
    ]  # fmt: skip
    assert placed(tmp_path, phases, processes, (WORKER, 25)) == [("fetch", "train", 1, 1)]


def test_a_worker_whose_parent_is_not_known_belongs_to_the_job_of_its_target(tmp_path):
    phases = job(JOB) + job(OTHER, -100) + fetches(WORKER, 20) + fetches(21, 20) + fetches(22, 20)
    processes = [
        process(JOB, target="a"), process(OTHER, target="b"), process(WORKER, target="a"),
        process(21, 1, target="b"), process(22, target="c"),
    ]  # fmt: skip
    found = placed(tmp_path, phases, processes, (WORKER, 25), (21, 26), (22, 27))
    assert [row[2] for row in found] == [0, 1, None]


def test_a_worker_with_contradicting_parents_belongs_to_the_job_of_its_target(tmp_path):
    phases = job(JOB) + job(OTHER, -100) + fetches(WORKER, 20)
    worker = process(WORKER, JOB, target="b")
    processes = [
        process(JOB, target="a"), process(OTHER, target="b"),
        worker, worker | {"tid": 21, "ppid": OTHER},
    ]  # fmt: skip
    assert placed(tmp_path, phases, processes, (WORKER, 25)) == [("fetch", "train", 1, 1)]


def test_a_worker_of_one_of_several_jobs_of_a_target_is_in_no_epoch(tmp_path):
    phases = job(JOB) + job(OTHER, -100) + fetches(WORKER, 20)
    processes = [process(JOB), process(OTHER), process(WORKER)]
    assert placed(tmp_path, phases, processes, (WORKER, 25)) == [("fetch", None, None, None)]


def test_a_number_that_two_processes_had_tells_no_parent(tmp_path):
    phases = job(JOB) + job(OTHER, -100) + fetches(WORKER, 20)
    processes = [process(JOB), process(OTHER), process(WORKER, JOB), process(WORKER, OTHER)]
    assert placed(tmp_path, phases, processes, (WORKER, 25)) == [("fetch", None, None, None)]


def test_without_a_list_of_processes_the_only_job_is_meant(tmp_path):
    phases = job(JOB) + fetches(WORKER, 20)
    assert placed(tmp_path, phases, None, (WORKER, 25)) == [("fetch", "train", 0, 0)]


def test_an_epoch_that_a_worker_marks_itself_stays(tmp_path):
    phases = job(JOB) + fetches(WORKER, 20, epoch=1, step=5)
    processes = [process(JOB), process(WORKER, JOB)]
    found = placed(tmp_path, phases, processes, (WORKER, 25), (WORKER, 50))
    assert found == [("fetch", "train", 1, 5), (None, "train", 0, 0)]


def test_a_step_that_a_worker_marks_is_in_no_other_epoch(tmp_path):
    phases = job(JOB) + fetches(WORKER, 20, step=5) + fetches(WORKER, 40, epoch=1)
    processes = [process(JOB), process(WORKER, JOB)]
    found = placed(tmp_path, phases, processes, (WORKER, 25), (WORKER, 45))
    assert found == [("fetch", "train", None, 5), ("fetch", "train", 1, None)]


def test_workers_without_a_job_are_in_no_epoch(tmp_path):
    found = placed(tmp_path, fetches(WORKER, 20), [process(WORKER)], (WORKER, 25))
    assert found == [("fetch", None, None, None)]


def test_each_table_with_times_and_threads_has_a_view_with_phases(tmp_path):
    assert {*IN_PHASE} <= ALL_TABLES.keys() | VIEWS.keys()
    away = [{"ts": 150, "pid": JOB, "tid": JOB, "dur_ns": 1}]
    tables = {"phases": job(JOB), "processes": [process(JOB)], "off_cpu": away}
    with make_trace(tmp_path / "t", tables) as trace:
        found = trace.rows(f"SELECT phase, epoch FROM {in_phase(trace, 'off_cpu')}")
    assert found == [("step", 1)]
