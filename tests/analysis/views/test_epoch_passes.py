"""Epochs of the folds of a cross-validation: each is an epoch of its own, in the report, in `reads`
and in the prediction."""

import re

import pandas as pd
import pytest

from tests.support.page_events import JOB, ONE, PAGE, PEER, PROCESSES, TWO, PageEvents
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.words import basis
from tracer.analysis.report.by_phase import by_phase
from tracer.analysis.report.reads import READS_BY_EPOCH, about_partial
from tracer.analysis.report.tables import records
from tracer.analysis.views.in_phase import in_phase
from tracer.analysis.views.phases.marked_together import marked_together
from tracer.analysis.views.reading.reads import reads

ROOM = 1 << 14
"""Pages, more than all files have."""
UNIT = 64
"""Pages: a quarter of a MiB."""
FOLDS = [(0, 5), (1, 1), (2, 2), (0, 3), (1, 4), (2, 6)]
"""The epochs of two folds: the number of each, and the units that it uses from the file's begin."""
PASSES = [(0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2)]
"""Epoch and pass of each."""
NEW = [5, 0, 0, 0, 0, 1]
"""Units that no epoch before it has used."""


def trained(epochs=FOLDS):
    """Events of a job that uses some units in each epoch."""
    made = PageEvents()
    for number, units in epochs:
        made.read(0, UNIT * units)
        made.end_epoch(number)
    return made


def opened(folder, made, targets=ONE, processes=PROCESSES, **manifest):
    """Opens a trace of these events."""
    tables = {**made.tables, "processes": processes}
    return make_trace(folder, tables, **{"clock": made.clock, "targets": targets, **manifest})


def of_view(trace):
    """Returns epoch, pass and pages used of a job, by the view `reads`."""
    reads(trace)
    return trace.rows(
        "SELECT epoch, pass, sum(accessed)::BIGINT FROM reads WHERE target = 'job'"
        " GROUP BY ALL ORDER BY pass, epoch"
    )


def predicted(trace):
    """Returns the rows of a prediction with room for everything."""
    return answer_memory(trace, [ROOM * PAGE], None, 0)


def in_units(rows, name, target="job"):
    """Returns epoch, pass and units of a target's rows, in their order."""
    mine = rows[rows["target"] == target]
    units = mine[f"{name}_pages"] // UNIT
    return list(zip(mine["epoch"], mine["pass"], units, strict=True))


# Folds


def test_reads_have_a_row_per_pass(tmp_path):
    with opened(tmp_path / "t", trained()) as trace:
        assert of_view(trace) == [
            (*one, UNIT * units) for one, (_, units) in zip(PASSES, FOLDS, strict=True)
        ]
        rows = records(READS_BY_EPOCH.of(trace))
        assert marked_together(trace) == {}
    told = [(row["epoch"], row["pass"], row["accessed_mib"], row["read_mib"]) for row in rows]
    assert told == [
        (*one, units / 4, new / 4) for one, (_, units), new in zip(PASSES, FOLDS, NEW, strict=True)
    ]


def test_each_epoch_of_a_fold_is_predicted_by_itself(tmp_path):
    with opened(tmp_path / "t", trained()) as trace:
        found = predicted(trace)
    used = [(*one, units) for one, (_, units) in zip(PASSES, FOLDS, strict=True)]
    new = [(*one, units) for one, units in zip(PASSES, NEW, strict=True)]
    assert in_units(found.reads, "used") == used
    for model in ("recorded", "two-lists", "lru", "min", "resident"):
        assert in_units(found.reads, model) == new, model
    assert found.marked_together == {}


def test_the_means_are_of_the_epochs_of_all_folds(tracer, tmp_path):
    opened(tmp_path / "a.trace", trained()).close()
    verb = ("predict", "a.trace", "--memory", "64M", "--read-ahead", 0)
    said = tracer(*verb).out
    rows = [re.split(r"\s{2,}", line.strip()) for line in said.splitlines()]
    assert [row[2:5] for row in rows if row[2:3] in (["first"], ["later"])] == [
        ["first", "1.250", "1.250"],
        ["later", "0.800", "0.050"],
    ]
    told = tracer(*verb, "--json").json
    assert [(row["epoch"], row["pass"]) for row in told["reads"]] == PASSES
    tracer(*verb, "--html", "a.html")
    assert '<button type="button">pass</button>' in (tmp_path / "a.html").read_text()


def test_the_first_epoch_is_the_first_in_time(tracer, tmp_path):
    """The recording begins before the last epoch of a fold."""
    made = trained([(2, 5), (0, 1), (1, 2), (2, 3)])
    with opened(tmp_path / "a.trace", made) as trace:
        found = predicted(trace)
    assert in_units(found.reads, "used") == [(2, 1, 5), (0, 1, 1), (1, 1, 2), (2, 2, 3)]
    said = tracer("predict", "a.trace", "--memory", "64M", "--read-ahead", 0).out
    rows = [re.split(r"\s{2,}", line.strip()) for line in said.splitlines()]
    assert [row[2:5] for row in rows if row[2:3] in (["first"], ["later"])] == [
        ["first", "1.250", "1.250"],
        ["later", "0.500", "0.000"],
    ]


def test_folds_of_one_epoch_adjoin(tmp_path):
    """The last event has the time at which one fold ends and the next begins."""
    made = trained([(0, 3), (0, 2)])
    made.events[-1]["ts"] = made.phases[1]["start"]
    with opened(tmp_path / "t", made) as trace:
        assert of_view(trace) == [(0, 1, 3 * UNIT), (0, 2, 2 * UNIT)]


def test_an_epoch_recorded_in_part_is_named_with_its_pass(tmp_path):
    made = trained()
    clock = made.clock | {"end_ns": made.phases[-1]["end"] - 1}
    with opened(tmp_path / "t", made, clock=clock) as trace:
        notes, found = about_partial(trace), predicted(trace)
        rows = records(READS_BY_EPOCH.of(trace))
    assert [row["partial"] for row in rows] == [False] * 5 + [True]
    assert found.reads["partial"].tolist() == [False] * 5 + [True]
    sentence = "job: only a part of the reads of epoch 2 (pass 2) was recorded"
    assert [note.split(", because")[0] for note in notes] == [sentence]
    assert sum(said.startswith(sentence) for said in basis(found)) == 1


def test_an_epoch_of_a_fold_without_reads_counts_with_no_page(tmp_path):
    made = trained(FOLDS[:3])
    made.end_epoch(0)
    made.read(0, 4 * UNIT)
    made.end_epoch(1)
    with opened(tmp_path / "t", made) as trace:
        found = predicted(trace)
    assert in_units(found.reads, "used") == [(0, 1, 5), (1, 1, 1), (2, 1, 2), (0, 2, 0), (1, 2, 4)]
    assert found.reads["partial"].tolist() == [False] * 5


def test_the_passes_of_two_traces_are_added_up(tmp_path):
    """Only one of the two has several."""
    parts = []
    for name, epochs in (("a", FOLDS), ("b", FOLDS[:3])):
        with opened(tmp_path / name, trained(epochs)) as trace:
            parts.append(READS_BY_EPOCH.parts(trace))
    alone = READS_BY_EPOCH.finish(parts[1])
    assert "pass" not in alone and len(alone) == 3
    rows = records(READS_BY_EPOCH.finish(READS_BY_EPOCH.together(parts)))
    told = [(row["epoch"], row["pass"], row["accessed_mib"]) for row in rows]
    assert told == [
        *((*one, 2 * units / 4) for one, (_, units) in zip(PASSES[:3], FOLDS[:3], strict=True)),
        *((*one, units / 4) for one, (_, units) in zip(PASSES[3:], FOLDS[3:], strict=True)),
    ]


# Processes


def ranks(folds):
    """Two processes of a target that train together: 2 and 3 units in an epoch, then one more."""
    made = PageEvents()
    for fold in range(folds):
        for epoch in range(2):
            made.read(0, UNIT * (2 + fold))
            made.read(0, UNIT * 3, tid=PEER)
            made.end_epoch(epoch)
            made.end_epoch(epoch, PEER)
    return made


TOGETHER = [{**one, "target": "job"} if one["pid"] == PEER else one for one in PROCESSES]


@pytest.mark.parametrize("folds", [1, 2])
def test_processes_that_train_together_have_the_same_passes(tmp_path, folds):
    with opened(tmp_path / "t", ranks(folds), processes=TOGETHER) as trace:
        assert of_view(trace) == [
            (epoch, fold + 1, UNIT * (5 + fold)) for fold in range(folds) for epoch in range(2)
        ]
        found, table = predicted(trace), READS_BY_EPOCH.of(trace)
        assert marked_together(trace) == {"job": 2}
    assert found.reads["used_pages"].tolist() == [
        UNIT * (5 + fold) for fold in range(folds) for _ in range(2)
    ]
    assert ("pass" in found.reads, "pass" in table) == (folds > 1, folds > 1)


def test_a_target_has_the_passes_of_its_own_process(tmp_path):
    """Peer trains once while the job trains in two folds."""
    made = trained()
    made.read(0, UNIT, tid=PEER)
    made.phases += [
        {"name": "epoch", "start": 0, "end": made.now + 1, "pid": PEER, "tid": PEER, "epoch": 0},
        {"name": "epoch", "start": made.now + 1, "end": made.now + 2, "pid": PEER, "tid": PEER,
         "epoch": 1},
    ]  # fmt: skip
    with opened(tmp_path / "t", made, TWO) as trace:
        found = predicted(trace)
    assert [row[:2] for row in in_units(found.reads, "used")] == PASSES
    assert in_units(found.reads, "used", "peer") == [(0, 1, 1), (1, 1, 0)]


def call(ts, pid=JOB):
    return {"ts": ts, "pid": pid, "tid": pid, "name": "read", "dur_ns": 1}


def phase(name, start, end, epoch=None, pid=JOB, **more):
    mark = {"name": name, "start": start, "end": end, "epoch": epoch, "pid": pid, "tid": pid}
    return mark | more


EPOCHS = [
    phase("epoch", 0, 10, 0),
    phase("epoch", 10, 20, 1),
    phase("eval", 20, 25),
    phase("epoch", 30, 40, 0),
    phase("epoch", 40, 50, 1),
    phase("checkpoint", 50, 52),
    phase("epoch", 52, 60, 1),  # goes on from the checkpoint
]
CHILD, WORKER = 20, 21
FORKED = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python", "ppid": 1},
    *(
        {"pid": pid, "tid": pid, "role": "child", "target": "job", "comm": "python", "ppid": JOB}
        for pid in (CHILD, WORKER)
    ),
]


def counted(frame, *columns):
    """Returns rows with None for null."""
    shown = frame[list(columns)].astype(object)
    return [tuple(row) for row in shown.where(frame[list(columns)].notna(), None).to_numpy()]


def test_kernel_activity_by_epoch_has_a_row_per_pass(tmp_path):
    """A child that marks nothing is in the epochs of its parent."""
    calls = [call(ts) for ts in (5, 10, 22, 35, 45, 51, 55)] + [call(37, CHILD)]
    tables = {"phases": EPOCHS, "processes": FORKED, "syscalls": calls}
    with make_trace(tmp_path / "t", tables, targets=ONE) as trace:
        found = by_phase(trace, "epoch")
    assert counted(found, "epoch", "pass", "calls") == [
        *((0, 1, 1), (1, 1, 1), (0, 2, 2), (1, 2, 1), (1, 3, 1)),
        (None, None, 2),
    ]


def test_kernel_activity_by_step_has_a_row_per_pass(tmp_path):
    steps = [phase("step", at, at + 5, 0, step=0) for at in (2, 32)]
    tables = {
        "phases": sorted([*EPOCHS, *steps], key=lambda one: one["start"]),
        "processes": FORKED,
        "syscalls": [call(ts) for ts in (3, 4, 33, 38)],
    }
    with make_trace(tmp_path / "t", tables, targets=ONE) as trace:
        found = by_phase(trace, "step")
    assert list(found.columns)[:4] == ["epoch", "pass", "step", "calls"]
    assert counted(found, "epoch", "pass", "step", "calls") == [
        *((0, 1, 0, 2), (0, 2, 0, 1)),
        (0, 2, None, 1),
    ]


def test_a_forked_process_that_marks_epochs_has_passes_of_its_own(tmp_path):
    """It trains once, while its parent is in the second fold."""
    phases = sorted([*EPOCHS, phase("epoch", 33, 39, 0, CHILD)], key=lambda one: one["start"])
    calls = [call(5), call(35), call(36, CHILD)]
    tables = {"phases": phases, "processes": FORKED, "syscalls": calls}
    with make_trace(tmp_path / "t", tables, targets=ONE) as trace:
        found = by_phase(trace, "epoch")
    assert counted(found, "epoch", "pass", "calls") == [(0, 1, 2), (0, 2, 1)]


def test_a_worker_fetches_for_the_pass_that_its_job_is_in_or_begins_next(tmp_path):
    """It marks its fetches, two of them before their epoch begins or after all have ended."""
    fetches = [phase("fetch", at, at + 2, 0, WORKER) for at in (3, 27, 33, 70)]
    phases = sorted([*EPOCHS, *fetches], key=lambda one: one["start"])
    calls = [call(ts, WORKER) for ts in (4, 15, 28, 34, 45, 71)]
    tables = {"phases": phases, "processes": FORKED, "syscalls": calls}
    with make_trace(tmp_path / "t", tables, targets=ONE) as trace:
        view = in_phase(trace, "syscalls")
        found = trace.rows(f"SELECT ts, epoch, pass FROM {view} ORDER BY ts")
    assert found == [
        *((4, 0, 1), (15, 1, 1), (28, 0, 2), (34, 0, 2), (45, 1, 2)),
        (71, 0, 2),
    ]


def test_nothing_is_told_apart_if_no_number_repeats(tmp_path):
    """Two threads mark each epoch, and the numbers go down."""
    epochs = [
        phase("epoch", start, start + 9, 2 - number, tid=tid)
        for number in range(3)
        for start, tid in ((10 * number, JOB), (10 * number + 1, 60))
    ]
    tables = {"phases": epochs, "processes": FORKED, "syscalls": [call(5), call(15)]}
    with make_trace(tmp_path / "t", tables, targets=ONE) as trace:
        found = by_phase(trace, "epoch")
        passes = trace.rows(f"SELECT DISTINCT pass FROM {in_phase(trace, 'syscalls')}")
    assert "pass" not in found and counted(found, "epoch", "calls") == [(1, 1), (2, 1)]
    assert passes == [(1,)]


def test_a_trace_without_marks_has_no_passes(tmp_path):
    made = PageEvents()
    made.read(0, UNIT)
    with opened(tmp_path / "t", made) as trace:
        assert of_view(trace) == [(None, None, UNIT)]
        found = predicted(trace)
    assert "pass" not in found.reads and pd.isna(found.reads["epoch"]).all()


@pytest.mark.slow
def test_the_report_of_folds_has_80_columns(tracer, tmp_path):
    name = "a-job-of-a-long-name"
    processes = [{**PROCESSES[0], "target": name}, *PROCESSES[1:]]
    opened(tmp_path / "t", trained(), [{**ONE[0], "name": name}], processes).close()
    said = tracer("report", "t").out
    assert max(map(len, said.splitlines())) <= 80
    told = tracer("report", "t", "--json").json["tables"]["reads_by_epoch"]
    assert [(row["epoch"], row["pass"]) for row in told] == PASSES
