"""Explanations: steps of a known making, and what is said of them."""

from __future__ import annotations

import html
import json

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import HOSTILE, JOB, MS, PROCESSES, TARGETS, WORKER, steps_of
from tracer.analysis.compare.measured import measured
from tracer.analysis.explain.explanation import GROUPS, explain
from tracer.analysis.explain.over_time import over_time
from tracer.analysis.explain.words import meanwhile
from tracer.analysis.findings.catalogue import findings
from tracer.analysis.report.step_times import step_times
from tracer.analysis.report.waits import waits_table
from tracer.analysis.studies.measures import of_trace
from tracer.analysis.timeline.axis import axis
from tracer.analysis.timeline.critical_path import critical_path
from tracer.probes.errors import BadTrace, UsageError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("steps") / "t"
    with make_trace(folder, steps_of([2, 2, 2, 2, 2, 2, 2, 40, 2]), targets=TARGETS) as made:
        yield made


@pytest.mark.parametrize("by", GROUPS)
def test_parts_add_up(trace, by):
    found = explain(trace, by)
    assert sum(part.ns for part in found.parts) == found.total_ns == (9 * 10 + 8 * 2 + 40) * MS
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    for step in found.slowest:
        assert sum(part.ns for part in step.parts) == step.total_ns
        typical = [part.typical_ns for part in found.slowest[-1].parts]
        assert sum(typical) == pytest.approx(found.typical_ns)


def test_the_slowest_step_is_compared_with_typical_ones(trace):
    found = explain(trace, slowest=1)
    (step,) = found.slowest
    assert (step.epoch, step.step, step.total_ns, found.median_ns) == (0, 7, 50 * MS, 12 * MS)
    more = {(part.group["thread"], part.group["kind"]): part.more_ns for part in step.parts}
    assert more == {
        (HOSTILE, "timer"): pytest.approx(19 * MS),
        (HOSTILE, "run"): pytest.approx(19 * MS),
        (None, "run"): pytest.approx(0, abs=2 * MS),
    }
    assert [s["kind"] for s in step.segments] == ["run", "timer", "run", "run", "run"]


def test_the_median_of_an_even_number_of_steps_is_the_mean_of_the_two_in_the_middle(tmp_path):
    with make_trace(tmp_path / "t", steps_of([2, 6]), targets=TARGETS) as made:
        assert explain(made).median_ns == 14 * MS


def test_each_query_gives_its_number(trace):
    found = explain(trace)
    parts = [*found.parts, *(part for step in found.slowest for part in step.parts)]
    for part in parts:
        assert trace.rows(part.query) == [(part.ns,)]
    assert len(parts) >= 9


def test_a_step_can_be_named(trace):
    (step,) = explain(trace, step=(0, 3)).slowest
    assert (step.step, step.total_ns) == (3, 12 * MS)
    with pytest.raises(UsageError, match="no training step 1:3"):
        explain(trace, step=(1, 3))


def test_steps_of_one_name_are_told_apart_by_the_pass_of_their_epochs(tmp_path, tracer):
    """Two folds of one epoch with two steps."""
    tables = steps_of([2, 4, 6, 8])
    steps = [one for one in tables["phases"] if one["name"] == "step"]
    for place, marked in enumerate(tables["phases"][1:]):
        marked["step"] = place // 2 % 2
    for first, last in (steps[:2], steps[2:]):
        mark = {"name": "epoch", "start": first["start"], "end": last["end"], "epoch": 0}
        tables["phases"].append({**mark, "pid": JOB, "tid": JOB})
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as made:
        found = explain(made, step=(0, 1)).slowest
        assert [(one.epoch_pass, one.total_ns) for one in found] == [(1, 14 * MS), (2, 18 * MS)]
    told = tracer("explain", "t", "--step", "0:0", "--json").json["slowest"]
    assert [(one["epoch"], one["pass"], one["step"]) for one in told] == [(0, 1, 0), (0, 2, 0)]
    assert "Step 0:1 (pass 2) took 18 ms" in tracer("explain", "t", "--slowest", "1").out


def test_a_step_whose_batch_is_fetched_before_the_epoch_belongs_to_the_pass_of_its_epoch(tmp_path):
    job = {"pid": JOB, "tid": JOB}
    tables: dict = {"processes": PROCESSES, "off_cpu": [], "phases": []}
    for begin in (100 * MS, 200 * MS):
        epoch = {"start": begin + 3 * MS, "end": begin + 20 * MS, "epoch": 0, **job}
        tables["phases"] += [
            {"name": "fetch", "start": begin, "end": begin + 2 * MS, **job},
            {"name": "epoch", **epoch},
            {"name": "step", "step": 0, **epoch},
        ]
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as made:
        found = explain(made, step=(0, 0)).slowest
    assert [(one.start, one.epoch_pass) for one in found] == [(100 * MS, 1), (200 * MS, 2)]


@pytest.mark.parametrize("chosen", [{"slowest": 4}, {"step": (0, 0)}])
def test_steps_that_are_alike_come_in_order_of_their_threads(tmp_path, chosen):
    others = [90, 3, 50]
    tables = steps_of([0])
    tables["phases"] += [
        {**one, "pid": pid, "tid": pid} for pid in others for one in tables["phases"]
    ]
    tables["processes"] = PROCESSES + [{**PROCESSES[0], "pid": pid, "tid": pid} for pid in others]
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as made:
        assert [one.tid for one in explain(made, **chosen).slowest] == [3, JOB, 50, 90]


def test_a_step_that_began_before_the_recording_is_not_explained(tmp_path):
    """Nobody knows what its thread did before: it may have been stopped."""
    clock = {"name": "mono", "start_ns": 105 * MS, "end_ns": 10**9}
    tables = steps_of([200, 2, 3])
    with make_trace(tmp_path / "t", tables, targets=TARGETS, clock=clock) as made:
        found = explain(made)
        assert (found.steps, found.longest_ns) == (2, 13 * MS)
        with pytest.raises(UsageError, match="began in the recording"):
            explain(made, step=(0, 0))


def test_a_step_that_ends_after_the_recording_counts_nowhere(tmp_path):
    """Steps of 12 ms with 3 ms of fetch, and one of 700 ms that the recording does not have."""
    tables = steps_of([2, 2, 2, 2])
    cut = {"name": "step", "start": 200 * MS, "end": 900 * MS, "pid": JOB, "tid": JOB}
    tables["phases"].append({**cut, "epoch": 0, "step": 4})
    clock = {"name": "mono", "start_ns": 0, "end_ns": 250 * MS}
    with make_trace(tmp_path / "t", tables, targets=TARGETS, clock=clock) as made:
        found = explain(made)
        assert (found.steps, found.longest_ns, found.total_ns) == (4, 12 * MS, 48 * MS)
        with pytest.raises(UsageError, match="ended in it"):
            explain(made, step=(0, 4))
        (whole,) = step_times(made).query("part == 'end to end'").to_dict("records")
        assert (whole["steps"], whole["mean_ms"]) == (4, 12)
        measures = of_trace(made, only=["train_step_mean_ms", "stall_first_epoch_ms"])
        assert (measures["train_step_mean_ms"], measures["stall_first_epoch_ms"]) == (12, 3)
        compared = measured(made).frame.set_index(["topic", "measure"])["value"]
        assert compared["minibatch", "train: end to end"] == 12
        by_topic = {one.topic: one for one in findings(made)}
    assert by_topic["data loading"].value == 25
    assert "slow minibatches" not in by_topic


def test_other_steps_count_where_none_trains(tmp_path):
    with make_trace(tmp_path / "t", steps_of([2, 3], "inference"), targets=TARGETS) as made:
        assert (explain(made).stage, explain(made).steps) == ("inference", 2)


def test_evaluations_between_epochs_are_no_training_steps(tmp_path):
    tables = steps_of([2, 2, 2])
    start = 100 * MS + 12 * MS
    tables["phases"].append(
        {"name": "eval", "start": start, "end": start + 12 * MS, "pid": JOB, "tid": JOB}
    )
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as made:
        found = explain(made)
        path_s = waits_table(made)["path_s"].sum()
        for part in found.parts:
            assert made.rows(part.query) == [(part.ns,)]
        assert {one.value for one in found.findings} == {
            value for one in found.findings for value, *_ in made.rows(one.query)
        }
    assert (found.steps, found.total_ns) == (2, 24 * MS)
    assert sum(part.ns for part in found.parts) == 24 * MS
    assert path_s == pytest.approx(2e-3)  # the worker sleeps 1 ms in each training step
    (timer,) = [one for one in found.findings if one.topic == "steps: timer"]
    assert timer.value == pytest.approx(100 * 2 / 24)


def test_a_wait_for_storage_tells_what_its_disk_served_meanwhile(tmp_path):
    """Not what another disk served, nor what was complete before or issued after it."""

    def request(sector, queue, issue, complete, tid, rwbs, sectors, dev="8:0"):
        of = {"dev": dev, "sector": sector, "nr_sector": sectors, "rwbs": rwbs, "tid": tid}
        return [
            {"ts": begin + int(ms * MS), "event": event, "comm": names[tid], **of}
            for event, ms in (("bio_queue", queue), ("issue", issue), ("complete", complete))
        ]

    begin = 100 * MS
    names = {JOB: "python", 50: "kworker/u8:1", 60: "postgres"}
    block = [
        *request(8, 1.1, 7, 9, JOB, "R", 8),
        *request(800, 0.5, 1, 3, 50, "W", 2048),
        *request(4000, 0.6, 3, 5, 50, "W", 1024),
        *request(9000, 0.7, 5, 7, 60, "WS", 16),
        *request(20, 0.1, 0.2, 0.5, 60, "W", 64),
        *request(24, 9.5, 9.6, 9.9, 60, "W", 64),
        *request(8, 2, 3, 4, 60, "W", 512, dev="8:16"),
    ]
    tables = {
        "processes": PROCESSES,
        "phases": [{"pid": JOB, "tid": JOB, "name": "step", "start": begin, "end": begin + 10 * MS,
                    "step": 0}],
        "syscalls": [{"ts": begin + MS, "tid": JOB, "name": "read", "dur_ns": 8 * MS + 1}],
        "off_cpu": [{"ts": begin + 2 * MS, "dur_ns": 7 * MS, "pid": JOB, "tid": JOB, "state": "D",
                     "wake_ns": begin + 9 * MS, "waker_tid": 0, "interrupt": True,
                     "run_delay_ns": 0}],
        "block": sorted(block, key=lambda row: row["ts"]),
    }  # fmt: skip
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as made:
        (step,) = explain(made).slowest
    (wait,) = [one for one in step.segments if one["kind"] == "disk"]
    assert [tuple(served.values()) for served in wait["meanwhile"]] == [
        ("8:0", "write", "kworker/u8:1", None, False, 2, (2048 + 1024) * 512),
        ("8:0", "write", "postgres", None, False, 1, 16 * 512),
        ("8:0", "read", "python", None, True, 1, 8 * 512),
    ]
    assert meanwhile(wait["meanwhile"]) == (
        "1.5 MiB of writes of kworker/u8:1 (2 requests), 8.0 KiB of writes of postgres (1 request),"
        " 4.0 KiB of its own reads (1 request)"
    )


def test_the_lane_of_a_timeline_has_the_time_of_each_cause(tmp_path):
    clock = {"name": "mono", "start_ns": 100 * MS, "end_ns": 300 * MS}
    with make_trace(tmp_path / "t", steps_of([2, 4]), targets=TARGETS, clock=clock) as made:
        shown = axis(made)
        lane = critical_path(made, shown)
    sums = lane.frame.drop(columns=["from_s", "to_s"]).sum() * shown.width_s * 1e3
    assert sums.to_dict() == pytest.approx({"runs": 20 + 6 - 3, "sleeps for a given time": 3})


def test_a_timeline_without_steps_has_no_such_lane(tmp_path):
    with make_trace(tmp_path / "t", steps_of([]), targets=TARGETS) as made:
        assert critical_path(made, axis(made)) is None


def test_a_trace_without_steps_is_told(tmp_path):
    made = make_trace(tmp_path / "t", steps_of([]), targets=TARGETS)
    with made, pytest.raises(BadTrace, match="no step that began and ended"):
        explain(made)


def test_a_trace_without_the_scheduler_is_told_how_to_record_it(tmp_path):
    tables = steps_of([2])
    del tables["off_cpu"]
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as made:
        with pytest.raises(BadTrace) as told:
            explain(made)
        assert "tracer record -e default,sched" in told.value.mend


def test_the_command(trace, tracer):
    said = tracer("explain", trace.folder).out
    assert "9 training steps: median 12 ms, 95 % within" in said
    assert "Step 0:7 took 50 ms, 4.2 times the median." in said
    assert "in 19 % of the steps' time, the step waits while another thread" in said
    assert "evil'\\x1b[31m" in said
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 80
    told = json.loads(tracer("explain", trace.folder, "--json", "--slowest", "1").out)
    assert told["slowest"][0]["parts"][0]["kind"] in ("run", "timer")
    assert told["parts"][0]["query"].startswith("SELECT")


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("target", ["50 % target job runs", "25 % target data runs", "25 % target data sleeps"]),
        ("file", ["75 % any thread runs", "25 % any thread sleeps"]),
    ],
)
def test_parts_of_several_threads_are_not_said_to_be_the_step_s(tmp_path, tracer, by, rows):
    """The step's thread runs, and its worker, of another target, runs and sleeps."""
    tables = steps_of([10, 10]) | {"processes": [PROCESSES[0], PROCESSES[1] | {"target": "data"}]}
    targets = [*TARGETS, TARGETS[0] | {"name": "data", "pid": WORKER}]
    made = make_trace(tmp_path / "t", tables, targets=targets)
    made.close()
    said = " ".join(tracer("explain", "t", "--by", by, "--slowest", "0").out.split())
    table = said.partition("depended on ")[2]
    assert [row for row in rows if row not in table] == []
    assert "step's thread" not in table
    tracer("explain", "t", "--by", by, "--html", "why.html")
    assert "step's thread" not in html.unescape((tmp_path / "why.html").read_text())


def test_a_thread_without_a_name_is_not_the_step_s(tmp_path, tracer):
    """The worker, whose name is not known, has 10 of the 20 ms of each step."""
    tables = steps_of([10, 10]) | {"processes": [PROCESSES[0], PROCESSES[1] | {"comm": None}]}
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as made:
        for by in ("kind", "thread", "line"):
            parts = explain(made, by).parts
            of_worker = [part for part in parts if part.group["thread"] is not None]
            assert sum(part.ns for part in of_worker) == 2 * 10 * MS
            assert {part.group["kind"]: part.ns for part in of_worker} == {
                "run": 10 * MS, "timer": 10 * MS,
            }  # fmt: skip
            assert [made.rows(part.query) for part in parts] == [[(part.ns,)] for part in parts]
    said = " ".join(tracer("explain", "t").out.split())
    assert "25 % fetch, in [unnamed] runs" in said
    assert "computes (100 % of it a thread without a name)" in said


def test_the_page_has_every_slow_step_and_nothing_of_an_enemy(trace, tracer, tmp_path):
    page = tmp_path / "why.html"
    tracer("explain", trace.folder, "--html", page, "--slowest", "2")
    text = page.read_text()
    assert "Step 0:7: 50 ms" in text
    assert text.count('class="figure"') == 3
    assert "\x1b" not in text
    assert "exists" in tracer("explain", trace.folder, "--html", page, status=2).err
    tracer("explain", trace.folder, "--html", page, "--force")


@pytest.mark.parametrize("steps", [1, 599, 601, 1300])
def test_the_bars_of_steps_keep_their_time(tmp_path, steps):
    clock = {"name": "mono", "start_ns": 0, "end_ns": 10**11}
    with make_trace(tmp_path / "t", steps_of([2] * steps), targets=TARGETS, clock=clock) as made:
        found = explain(made, slowest=0)
        bars = over_time(made)
    assert len(bars) <= 600
    assert bars["first"].is_monotonic_increasing
    each = -(-steps // 600)
    assert bars["first"].iloc[-1] == (steps - 1) // each * each
    assert bars.drop(columns=["first", "called"]).sum(axis="columns").tolist() == pytest.approx(
        [12.0] * len(bars)
    )
    assert found.steps == steps


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--by", "nothing"), "--by does not take 'nothing'; give one of kind, target"),
        (
            ("--step", "7"),
            "--step does not take '7'; give an epoch and a step, as in 0:12, also if steps have no"
            " epoch",
        ),
        (("--step", "3:99"), "no training step 3:99 began in the recording and ended in it; see:"),
    ],
)
def test_a_mistake_is_one_line(trace, tracer, arguments, complaint):
    ran = tracer("explain", trace.folder, *arguments, status=2)
    assert complaint in ran.err
    assert ran.err.count("\n") == 1


def test_differences_add_up_if_the_slow_step_lacks_a_part(tmp_path):
    tables = steps_of([2, 2, 2, 2, 2, 2, 2, 40, 2])
    (slow,) = (one for one in tables["phases"] if (one["name"], one.get("step")) == ("step", 7))
    for name in ("off_cpu", "syscalls"):  # its worker never sleeps
        tables[name] = [
            row
            for row in tables[name]
            if row["tid"] == JOB or not slow["start"] <= row["ts"] < slow["end"]
        ]
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as made:
        found = explain(made, slowest=1)
        (step,) = found.slowest
        assert [made.rows(part.query)[0][0] for part in step.parts] == [p.ns for p in step.parts]
    assert 0 in [part.ns for part in step.parts]
    assert sum(part.ns for part in step.parts) == step.total_ns
    more = sum(part.more_ns for part in step.parts)
    assert more == pytest.approx(step.total_ns - found.typical_ns)


@pytest.mark.parametrize("top", ["253:0", "8:1"])
def test_a_wait_for_a_volume_or_a_partition_tells_what_the_disk_below_served(tmp_path, top):
    def event(kind, ms, dev, tid=JOB, comm="python", sector=2056, count=8):
        return {"ts": 100 * MS + int(ms * MS), "event": kind, "dev": dev, "sector": sector,
                "nr_sector": count, "rwbs": "R", "tid": tid, "pid": tid, "comm": comm}  # fmt: skip

    large = (60, "postgres", 9000, 2048)
    block = [
        event("bio_queue", 0.5, "8:0", *large), event("issue", 0.6, "8:0", *large),
        event("bio_queue", 1.1, top, sector=8),
        *([event("bio_queue", 1.2, "8:0")] if top == "253:0" else []),
        event("issue", 1.5, "8:0"),
        event("complete", 8, "8:0", *large), event("complete", 9, "8:0"),
    ]  # fmt: skip
    away = {"ts": 102 * MS, "dur_ns": 7 * MS, "pid": JOB, "tid": JOB, "state": "D",
            "wake_ns": 109 * MS, "waker_tid": 0, "interrupt": True, "run_delay_ns": 0}  # fmt: skip
    tables = {
        "processes": PROCESSES, "block": block, "off_cpu": [away],
        "phases": [{"pid": JOB, "tid": JOB, "name": "step", "start": 100 * MS, "end": 110 * MS,
                    "step": 0}],
        "syscalls": [{"ts": 101 * MS, "tid": JOB, "name": "read", "dur_ns": 8 * MS + 1}],
    }  # fmt: skip
    disks = [
        {"dev": "8:0", "name": "sda", "bytes": 1 << 40},
        {"dev": "253:0", "name": "dm-0", "bytes": 1 << 30, "on": ["8:0"]},
        {"dev": "8:1", "name": "sda1", "bytes": 1 << 30, "partition_of": "8:0", "start": 2048},
    ]
    with make_trace(tmp_path / "t", tables, targets=TARGETS, disks=disks) as trace:
        (step,) = explain(trace).slowest
        (wait,) = (one for one in step.segments if one["kind"] == "disk")
    assert wait["detail"] == top
    found = {(one["dev"], one["comm"]): one["bytes"] for one in wait["meanwhile"]}
    assert found == {("8:0", "postgres"): 1 << 20, ("8:0", "python"): 4096}
