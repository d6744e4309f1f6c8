"""Steps by their parts, and events by the phase they fell in, over small traces."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.report.by_phase import by_phase
from tracer.analysis.report.step_times import step_times
from tracer.analysis.report.tables import phases as phase_table
from tracer.analysis.report.tables import records
from tracer.analysis.views.in_phase import in_phase
from tracer.analysis.views.waiting.steps import steps
from tracer.probes.errors import UsageError

JOB, HELPER, WORKER, KERNEL = 7, 70, 8, 50


def phase(name, start, end, epoch=0, step=None, pid=JOB, tid=None):
    numbers = {"epoch": epoch, "step": step}
    return {"name": name, "start": start, "end": end, "pid": pid, "tid": tid or pid, **numbers}


STEP = [
    phase("step", 100, 200, step=0),
    phase("fetch", 100, 130, step=0),
    phase("forward", 135, 150, step=0),
    phase("backward", 150, 180, step=0),
    phase("optimizer", 182, 190, step=0),
    phase("checkpoint", 191, 195, step=0),
]


def rows(trace, query):
    return trace.connection.execute(query).fetchall()


def only(trace):
    query = trace.connection.execute(f"SELECT * FROM {steps(trace)}")
    row = dict(zip([column[0] for column in query.description], query.fetchone(), strict=True))
    return {k.removesuffix("_ns"): v for k, v in row.items() if k.endswith("_ns")}


def test_a_step_is_its_parts_and_what_is_left(tmp_path):
    with make_trace(tmp_path / "t", {"phases": STEP}) as trace:
        assert only(trace) == {
            "total": 100, "fetch_stall": 30, "compute": 53, "forward": 15, "backward": 30,
            "optimizer": 8, "checkpoint": 4, "overhead": 13,
            "gpu_forward": None, "gpu_backward": None, "gpu_optimizer": None, "gpu_wait": None,
        }  # fmt: skip


def test_uprobes_see_no_checkpoints_so_their_time_is_not_known(tmp_path):
    seen = [row | {"source": "uprobe"} for row in STEP if row["name"] in ("fetch", "backward")]
    inferred = [STEP[0] | {"source": "inferred"}]
    other = [row | {"pid": 9, "tid": 9, "source": "automatic"} for row in STEP]
    with make_trace(tmp_path / "t", {"phases": [*seen, *inferred, *other]}) as trace:
        found = rows(trace, f"SELECT pid, checkpoint_ns, overhead_ns FROM {steps(trace)}")
        parts = step_times(trace).set_index("part")
    assert sorted(found) == [(7, None, 100 - 30 - 30), (9, 4, 13)]
    assert parts.loc["checkpoint", "steps"] == 1
    assert parts.loc["overhead", "steps"] == 2


def test_parts_in_the_closure_of_an_optimizer_count_once(tmp_path):
    inside = [
        phase("step", 100, 200),
        phase("optimizer", 110, 180),
        phase("forward", 120, 140),
        phase("backward", 140, 170),
    ]
    with make_trace(tmp_path / "t", {"phases": inside}) as trace:
        found = only(trace)
    assert (found["forward"], found["backward"], found["optimizer"]) == (20, 30, 20)
    assert (found["compute"], found["overhead"]) == (70, 30)


def test_a_part_nested_twice_counts_once(tmp_path):
    inside = [
        phase("step", 100, 200),
        phase("optimizer", 110, 180),
        phase("backward", 120, 170),
        phase("forward", 130, 150),  # computed again, as checkpointed activations are
    ]
    with make_trace(tmp_path / "t", {"phases": inside}) as trace:
        found = only(trace)
    assert (found["forward"], found["backward"], found["optimizer"]) == (20, 30, 20)


def test_a_gpu_s_time_that_lacks_a_part_is_not_told(tmp_path):
    inside = [
        phase("step", 100, 200),
        {**phase("forward", 110, 120), "gpu_ns": 30},
        {**phase("forward", 130, 140), "gpu_ns": None},
        {**phase("optimizer", 150, 190), "gpu_ns": 90},
        {**phase("backward", 160, 170), "gpu_ns": None},
    ]
    with make_trace(tmp_path / "t", {"phases": inside}) as trace:
        found = only(trace)
    assert [found[f"gpu_{n}"] for n in ("forward", "backward", "optimizer")] == [None, None, None]


def test_a_fetch_in_no_stage_is_of_no_step_of_an_evaluation(tmp_path):
    marked = [
        phase("fetch", 90, 100),
        phase("eval", 100, 150),
        phase("step", 110, 120, step=0),
        phase("step", 160, 170, step=1),
    ]
    with make_trace(tmp_path / "t", {"phases": marked}) as trace:
        found = rows(trace, f"SELECT step, start FROM {steps(trace)} ORDER BY step")
    assert found == [(0, 110), (1, 90)]


def test_the_gpu_s_times_are_beside_the_cpu_s(tmp_path):
    inside = [
        phase("step", 100, 200),
        {**phase("optimizer", 110, 180), "gpu_ns": 90},
        {**phase("forward", 120, 140), "gpu_ns": 30},
        {**phase("backward", 140, 170), "gpu_ns": 50},
        {**phase("forward", 181, 183), "gpu_ns": 5},
    ]
    with make_trace(tmp_path / "t", {"phases": inside}) as trace:
        found = only(trace)
    assert (found["gpu_forward"], found["gpu_backward"], found["gpu_optimizer"]) == (35, 50, 10)
    assert (found["forward"], found["backward"], found["optimizer"]) == (22, 30, 20)


def test_a_fetch_before_the_script_s_own_step_belongs_to_it(tmp_path):
    marked = [phase("fetch", 60, 90), phase("step", 100, 200), phase("fetch", 210, 220)]
    marked.append(phase("step", 230, 300))
    with make_trace(tmp_path / "t", {"phases": marked}) as trace:
        found = rows(trace, f"SELECT total_ns, fetch_stall_ns, overhead_ns FROM {steps(trace)}")
    assert found == [(140, 30, 110), (90, 10, 80)]


def two_epochs(*, marked_inside):
    """Two epochs of two steps, each epoch with an evaluation of two batches after it.

    `marked_inside`: a step is marked without its fetch, which lies before it.
    """
    found, step = [phase("train", 0, 2000, epoch=None)], 0
    for epoch in (0, 1):
        for _ in range(2):
            at = epoch * 1000 + 100 * (step % 2)
            found.append(phase("fetch", at, at + 10, epoch, step))
            begin = at + 10 if marked_inside else at
            found.append(phase("step", begin, at + 90, epoch, step))
            found.append(phase("backward", at + 30, at + 70, epoch, step))
            step += 1
        found.append(phase("fetch", epoch * 1000 + 200, epoch * 1000 + 203, epoch))  # no batch
        found.append(phase("eval", epoch * 1000 + 300, epoch * 1000 + 900, epoch))
        found += [phase("fetch", epoch * 1000 + at, epoch * 1000 + at + 61, epoch)
                  for at in (310, 510)]  # fmt: skip
        found.append(phase("step", epoch * 1000 + 700, epoch * 1000 + 720, epoch, 0))
    return found


@pytest.mark.parametrize("marked_inside", [False, True])
def test_steps_after_an_evaluation_are_of_training_and_have_its_fetches_not(
    tmp_path, marked_inside
):
    with make_trace(tmp_path / "t", {"phases": two_epochs(marked_inside=marked_inside)}) as trace:
        found = rows(trace, f"SELECT stage, epoch, fetch_stall_ns, total_ns FROM {steps(trace)}")
    training = [(epoch, stall, total) for stage, epoch, stall, total in found if stage == "train"]
    assert training == [(0, 10, 90), (0, 10, 90), (1, 10, 90), (1, 10, 90)]
    evaluation = [(epoch, stall) for stage, epoch, stall, _ in found if stage == "eval"]
    assert evaluation == [(0, 122), (1, 122)]


def test_an_evaluation_within_a_step_leaves_the_step_its_parts(tmp_path):
    nested = [
        phase("train", 0, 1000),
        phase("step", 100, 900, step=0),
        phase("backward", 110, 130, step=0),
        phase("eval", 200, 600),
        phase("step", 210, 300, step=0),
        phase("forward", 220, 290, step=0),
        phase("optimizer", 700, 750, step=0),
        phase("step", 900, 990, step=1),
    ]
    with make_trace(tmp_path / "t", {"phases": nested}) as trace:
        found = rows(trace, f"SELECT stage, step, compute_ns FROM {steps(trace)}")
    assert found == [("train", 0, 70), ("eval", 0, 70), ("train", 1, 0)]


def test_a_batch_that_waits_while_others_are_evaluated_is_the_next_training_step_s(tmp_path):
    marked = [
        phase("train", 0, 1000),
        phase("fetch", 10, 30),
        phase("eval", 100, 500),
        phase("fetch", 110, 150),
        phase("step", 200, 300, step=0),
        phase("step", 600, 700, step=0),
    ]
    with make_trace(tmp_path / "t", {"phases": marked}) as trace:
        found = rows(trace, f"SELECT stage, fetch_stall_ns FROM {steps(trace)} ORDER BY 1")
    assert found == [("eval", 40), ("train", 20)]


def test_a_stage_of_another_thread_or_rank_is_not_the_step_s(tmp_path):
    marked = [
        phase("train", 0, 1000),
        phase("eval", 100, 500, pid=WORKER),
        phase("inference", 0, 1000, tid=HELPER),
        phase("step", 200, 300, step=0),
        phase("step", 200, 300, step=0, pid=WORKER),
    ]
    with make_trace(tmp_path / "t", {"phases": marked}) as trace:
        found = rows(trace, f"SELECT pid, stage FROM {steps(trace)} ORDER BY 1")
    assert found == [(JOB, "train"), (WORKER, "eval")]


def test_a_process_is_not_in_the_phases_of_a_killed_one_that_had_its_number(tmp_path):
    killed = [phase("train", 0, None), phase("step", 10, None, step=0)]
    later = [phase("step", 70, 80, step=0), phase("forward", 71, 75)]
    lives = [
        {"pid": JOB, "tid": JOB, "start_ns": start, "end_ns": end, "role": "target"}
        for start, end in ((0, 50), (60, None))
    ]
    faults = [{"ts": ts, "pid": JOB, "tid": JOB, "user": False} for ts in (20, 55, 65, 72)]
    tables = {"phases": [*killed, *later], "processes": lives, "page_faults": faults}
    with make_trace(tmp_path / "t", tables) as trace:
        assert rows(trace, f"SELECT stage, total_ns FROM {steps(trace)} ORDER BY start") == [
            ("train", None), (None, 10),
        ]  # fmt: skip
        where = f"SELECT phase, stage FROM {in_phase(trace, 'page_faults')} ORDER BY ts"
        assert rows(trace, where) == [
            ("step", "train"),
            (None, None),
            (None, None),
            ("forward", None),
        ]


def test_a_worker_s_fetch_is_no_stall(tmp_path):
    worker = phase("fetch", 110, 190, step=0, pid=WORKER)
    with make_trace(tmp_path / "t", {"phases": [*STEP, worker]}) as trace:
        assert only(trace)["fetch_stall"] == 30


def test_a_step_that_did_not_end_has_no_times(tmp_path):
    with make_trace(tmp_path / "t", {"phases": [phase("step", 100, None)]}) as trace:
        assert set(only(trace).values()) == {None}


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        (99, (None, None, None)),
        (100, ("fetch", 0, 0)),
        (131, ("step", 0, 0)),
        (150, ("backward", 0, 0)),
        (199, ("step", 0, 0)),
        (200, (None, None, None)),
    ],
)
def test_an_event_is_in_the_innermost_phase_of_its_thread(tmp_path, ts, expected):
    calls = [{"ts": ts, "pid": JOB, "tid": JOB, "nr": 1, "name": "read"}]
    with make_trace(tmp_path / "t", {"phases": STEP, "syscalls": calls}) as trace:
        view = in_phase(trace, "syscalls")
        assert rows(trace, f"SELECT phase, epoch, step FROM {view}") == [expected]


def test_the_last_of_phases_that_begin_and_end_together_is_innermost(tmp_path):
    """The recorder writes those around the others first."""
    call = {"ts": 120, "pid": JOB, "tid": JOB, "nr": 1, "name": "read"}
    whole = [
        phase("train", 100, 200, epoch=None),
        phase("epoch", 100, 200),
        phase("step", 100, 200, step=0),
        phase("forward", 100, 200, step=0),
    ]
    for n, expected in enumerate(
        [("train", None, None), ("epoch", 0, None), ("step", 0, 0), ("forward", 0, 0)]
    ):
        tables = {"phases": whole[: n + 1], "syscalls": [call]}
        with make_trace(tmp_path / f"{n}", tables) as trace:
            query = f"SELECT stage, phase, epoch, step FROM {in_phase(trace, 'syscalls')}"
            assert rows(trace, query) == [("train", *expected)]


def test_a_step_s_stage_is_the_inner_one_of_two_that_begin_and_end_together(tmp_path):
    phases = [phase("train", 100, 200), phase("eval", 100, 200), phase("step", 110, 150)]
    with make_trace(tmp_path / "t", {"phases": phases}) as trace:
        assert rows(trace, f"SELECT stage FROM {steps(trace)}") == [("eval",)]


def test_a_thread_without_marks_is_in_the_phase_of_its_job(tmp_path):
    """A thread of the job; a worker between its fetches; a flusher, for the only job."""
    faults = [
        {"ts": 140, "pid": pid, "tid": tid, "kind": "minor", "user": True}
        for pid, tid in ((JOB, HELPER), (WORKER, WORKER), (KERNEL, KERNEL))
    ]
    phases = [phase("train", 90, 300), *STEP, phase("fetch", 105, 110, pid=WORKER)]
    with make_trace(tmp_path / "t", {"phases": phases, "page_faults": faults}) as trace:
        query = f"SELECT pid, phase, stage FROM {in_phase(trace, 'page_faults')} ORDER BY pid"
        assert rows(trace, query) == [
            (JOB, "forward", "train"),
            (WORKER, None, "train"),
            (KERNEL, "forward", "train"),
        ]


def test_with_two_jobs_a_flusher_s_phase_is_not_known(tmp_path):
    fault = {"ts": 140, "pid": KERNEL, "tid": KERNEL, "kind": "minor", "user": False}
    other = phase("step", 90, 300, pid=9)
    with make_trace(tmp_path / "t", {"phases": [*STEP, other], "page_faults": [fault]}) as trace:
        assert rows(trace, f"SELECT phase FROM {in_phase(trace, 'page_faults')}") == [(None,)]


def test_everything_is_grouped_by_phase_epoch_or_step(tmp_path):
    second = [
        {**p, "start": p["start"] + 100, "end": p["end"] + 100, "epoch": 1, "step": 1} for p in STEP
    ]
    at = {"pid": JOB, "tid": JOB}
    content = {
        "phases": [*STEP, *second],
        "processes": [{"pid": JOB, "tid": JOB, "target": "job", "role": "target", "comm": "x"}],
        "syscalls": [
            {"ts": ts, **at, "nr": 1, "name": "read", "dur_ns": 2_000_000_000}
            for ts in (105, 106, 140, 205)
        ],
        "page_faults": [
            {"ts": 155, **at, "kind": kind, "user": True} for kind in ("minor", "major", "minor")
        ],
        "dirty": [
            {"ts": ts, **at, "event": "balance_dirty_pages", "pause_ns": pause}
            for ts, pause in ((192, 500_000_000), (193, 0), (292, 250_000_000))
        ],
    }
    with make_trace(tmp_path / "t", content) as trace:
        phases = by_phase(trace, "phase").set_index("phase")
        assert phases["calls"].to_dict() == {
            "fetch": 3,
            "forward": 1,
            "backward": 0,
            "checkpoint": 0,
        }
        assert phases.loc["fetch", "call_s"] == 6
        assert phases.loc["backward", ["faults", "major_faults"]].tolist() == [3, 1]
        assert phases.loc["checkpoint", ["stalls", "stall_s"]].tolist() == [2, 0.75]
        assert phases["flushed_pages"].isna().all()
        epochs = by_phase(trace, "epoch")
        assert epochs[["epoch", "calls", "faults", "stalls"]].values.tolist() == [
            [0, 3, 3, 1],
            [1, 1, 0, 1],
        ]
        assert by_phase(trace, "step")[["epoch", "step"]].values.tolist() == [[0, 0], [1, 1]]
        with pytest.raises(UsageError, match="cannot be grouped by 'hour'"):
            by_phase(trace, "hour")


def test_the_report_has_the_time_of_each_part_over_all_steps(tmp_path):
    second = [{**p, "start": p["start"] + 100, "end": p["end"] + 100} for p in STEP]
    second[2]["gpu_ns"] = 12
    spans = [phase("train", 90, 310), *STEP, *second]
    spans += [phase("inference", 390, 500), phase("step", 400, 500), phase("forward", 410, 490)]
    with make_trace(tmp_path / "t", {"phases": spans}) as trace:
        found = {
            (r["stage"], r["part"]): (r["steps"], r["mean_ms"], r["share"])
            for r in records(step_times(trace))
        }
    assert found["train", "end to end"] == (2, pytest.approx(100e-6), 1)
    assert found["train", "fetch stall"] == (2, pytest.approx(30e-6), pytest.approx(0.3))
    assert found["train", "compute"] == (2, pytest.approx(53e-6), pytest.approx(0.53))
    assert found["train", "gpu forward"] == (1, pytest.approx(12e-6), None)
    assert ("train", "gpu backward") not in found
    assert found["inference", "end to end"] == (1, pytest.approx(100e-6), 1)
    assert found["inference", "forward"] == (1, pytest.approx(80e-6), pytest.approx(0.8))
    parts = ("fetch stall", "compute", "checkpoint", "overhead")
    assert sum(found["train", part][2] for part in parts) == pytest.approx(1)


@pytest.mark.parametrize(
    "clock",
    [
        {"start_ns": 50, "end_ns": 300},
        {"start_ns": 0, "end_ns": 300, "targets_from_ns": 50, "targets_until_ns": 250},
        {"start_ns": 0, "end_ns": 300, "targets_from_ns": 0, "targets_until_ns": 150},
    ],
)
def test_the_report_s_times_leave_out_a_step_without_the_events_of_its_time(tmp_path, clock):
    """The finding about the same steps does so, too."""
    early = [{**p, "start": p["start"] - 90, "end": p["end"] - 90} for p in STEP]
    spans = [phase("train", 5, 250), *early, *STEP]
    with make_trace(tmp_path / "t", {"phases": spans}, clock=clock) as trace:
        found = {row["part"]: row["steps"] for row in records(step_times(trace))}
    assert found["end to end"] == found["forward"] == 1


def test_a_worker_s_fetches_are_no_steps_of_its_own(tmp_path):
    workers = [phase("fetch", 10 * n, 10 * n + 5, step=0, pid=WORKER + n) for n in range(3)]
    with make_trace(tmp_path / "t", {"phases": [*STEP, *workers]}) as trace:
        (found,) = [r for r in records(phase_table(trace)) if r["name"] == "fetch"]
    assert (found["count"], found["processes"], found["steps"]) == (4, 4, 1)
