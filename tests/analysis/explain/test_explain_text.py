"""Sentences of an explanation about its steps."""

import json

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import JOB, MS, PROCESSES, TARGETS, steps_of

pytestmark = pytest.mark.slow


def said_of(tracer, tmp_path, tables, *arguments, **manifest):
    make_trace(tmp_path / "t", tables, targets=TARGETS, **manifest).close()
    return " ".join(tracer("explain", "t", *arguments).out.split())


@pytest.mark.parametrize(
    ("longer_ms", "told"),
    [
        (6, "has 13.5 ms less than a typical step, but 6 ms more in: step, which runs."),
        (19.5, "takes as long as a typical step, but 15.6 ms more in: step, which runs."),
        (20, "has 500 us more than a typical step, and 20 ms more in: step, which runs."),
    ],
)
def test_a_part_that_is_longer_than_the_difference_is_no_part_of_it(
    tmp_path, tracer, longer_ms, told
):
    """Four steps of 30 ms, and one that waits 19.5 ms less and computes longer.

    The one that takes as long is typical, too.
    """
    tables = steps_of([20, 20, 20, 20, 0.5])
    last = tables["phases"][-2]
    assert last["name"] == "step"
    last["end"] += int(longer_ms * MS)
    said = said_of(tracer, tmp_path, tables, "--step", "0:4")
    assert f"It {told}" in said


def test_steps_of_several_stages_are_those_of_none(tmp_path, tracer):
    """One step of an inference, and two outside of it."""
    tables = steps_of([2, 2, 2], "inference")
    tables["phases"][0]["end"] = 112 * MS
    said = said_of(tracer, tmp_path, tables, "--slowest", "0")
    assert "3 steps: median 12 ms" in said


def test_a_step_without_a_number_is_not_called_none(tmp_path, tracer):
    tables = steps_of([2, 2, 4])
    del tables["phases"][-2]["step"]
    said = said_of(tracer, tmp_path, tables, "--slowest", "1")
    assert "A step without a number of epoch 0 took 14 ms" in said


def test_a_single_step_has_none_to_compare_with(tmp_path, tracer):
    said = said_of(tracer, tmp_path, steps_of([2]))
    assert "1 training step: median 12 ms" in said
    last = said.partition("Step 0:0 took 12 ms, 1.0 times the median.")[2]
    assert "There is no other typical step to compare it with." in last
    assert "typical step." not in last and "time more where" not in last
    tracer("explain", "t", "--html", "why.html")
    page = (tmp_path / "why.html").read_text()
    assert "There is no other typical step to compare it with." in page
    assert "training steps" not in page


def test_a_step_without_longer_parts_shows_its_longest_ones(tmp_path, tracer):
    said = said_of(tracer, tmp_path, steps_of([2, 2, 2, 2]), "--slowest", "1")
    last = said.partition("times the median.")[2]
    assert "It has no more of anything than a typical step." in last
    assert "9 ms 0 s step runs" in last and "elsewhere" not in last


def test_the_rows_of_a_step_add_up(tmp_path, tracer):
    """The last step computes 3 ms longer, and waits 1.5 ms less: the last row has the rest."""
    tables = steps_of([2, 2, 2, 2, 0.5])
    last = next(row for row in tables["phases"] if row["name"] == "step" and row["step"] == 4)
    last["end"] += 3 * MS
    longer = said_of(tracer, tmp_path, tables, "--step", "0:4").partition("the median.")[2]
    assert "12 ms +3 ms step runs" in longer
    assert "1.5 ms -1.5 ms elsewhere" in longer


def test_a_missing_step_is_answered_with_those_of_its_epoch(tmp_path, tracer):
    make_trace(tmp_path / "t", steps_of([2, 2, 4]), targets=TARGETS).close()
    said = tracer("explain", "t", "--step", "0:3", status=2).err
    assert said == (
        "tracer: no training step 0:3 began in the recording and ended in it;"
        " epoch 0 has steps 0 to 2\n"
    )


def test_the_recorder_is_told_from_another_process_of_its_name(tmp_path, tracer):
    tables = steps_of([0, 0])
    tables["processes"] = [
        *PROCESSES,
        *({"pid": pid, "tid": pid, "role": "other", "comm": "tracer", "ppid": 1} for pid in (5, 6)),
    ]
    tables["off_cpu"] = [
        {"ts": begin * MS, "dur_ns": 4 * MS, "pid": JOB, "tid": JOB, "state": "R+",
         "run_delay_ns": 4 * MS, "ran_tid": tid}
        for begin, tid in ((102, 5), (112, 6))
    ]  # fmt: skip
    said = said_of(tracer, tmp_path, tables, recorder={"pid": 5})
    assert "waits for a CPU (the recorder has it)" in said
    assert "waits for a CPU (tracer (not the recorder) has it)" in said
    told = json.loads(tracer("explain", "t", "--json").out)
    names = {part["by_comm"] for part in told["parts"] if part["kind"] == "cpu"}
    assert names == {"the recorder", "tracer (not the recorder)"}
    for part in told["parts"]:
        assert tracer("query", "t", part["query"], "--csv").out.split()[1] == str(part["ns"])


def test_another_process_of_the_job_s_name_is_told_from_the_job(tmp_path, tracer):
    """Most jobs, and many of their neighbours, are called python."""
    tables = steps_of([0, 0])
    (job,) = {row["comm"] for row in PROCESSES if row["tid"] == JOB}
    tables["processes"] = [
        *PROCESSES,
        {"pid": JOB, "tid": 7, "role": "target", "comm": job, "ppid": 1, "target": "job"},
        {"pid": 5, "tid": 5, "role": "other", "comm": job, "ppid": 1},
    ]
    tables["off_cpu"] = [
        {"ts": begin * MS, "dur_ns": 4 * MS, "pid": JOB, "tid": JOB, "state": "R+",
         "run_delay_ns": 4 * MS, "ran_tid": tid}
        for begin, tid in ((102, 5), (112, 7))
    ]  # fmt: skip
    said = said_of(tracer, tmp_path, tables)
    assert f"waits for a CPU ({job} has it)" in said
    assert f"waits for a CPU ({job} (not the job's) has it)" in said
    told = json.loads(tracer("explain", "t", "--json").out)
    assert {part["by_comm"] for part in told["parts"] if part["kind"] == "cpu"} == {
        job, f"{job} (not the job's)"
    }  # fmt: skip
    for part in told["parts"]:
        assert tracer("query", "t", part["query"], "--csv").out.split()[1] == str(part["ns"])
