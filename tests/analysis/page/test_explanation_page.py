"""The page of an explanation: the names of its bars, and the segments of a slow step."""

import html
import re

from tests.support.traces import make_trace
from tests.support.waiting_steps import JOB, PROCESSES, TARGETS, beside, steps_of
from tracer.analysis.explain.explanation import explain
from tracer.analysis.explain.over_time import over_time
from tracer.analysis.explain.waiting import waiting_boxes
from tracer.analysis.explain.words import duration
from tracer.analysis.figures.critical_path import step_times
from tracer.analysis.page.explanation import explanation_page

US = 1000
CLOCK = {"name": "mono", "start_ns": 0, "end_ns": 10**11}


def many_waits(waits: int) -> dict[str, list[dict]]:
    """A step with as many waits of 50 us for a lock, one each 100 us."""
    made: dict[str, list[dict]] = {
        "processes": PROCESSES, "off_cpu": [], "syscalls": [], "python_stacks": [], "phases": [],
    }  # fmt: skip
    start = 10**8
    of = {"pid": JOB, "tid": JOB}
    for number in range(waits):
        at = start + number * 100 * US
        made["syscalls"].append({"ts": at, "name": "futex", "dur_ns": 60 * US, **of})
        made["off_cpu"].append({"ts": at + 1, "dur_ns": 50 * US, "state": "S", **of})
    end = start + waits * 100 * US
    step = {"name": "step", "start": start, "end": end, "epoch": 0, "step": 0, **of}
    made["phases"] = [{"name": "train", "start": 0, "end": 2 * end, **of}, step]
    return made


def page_of(trace, most):
    found = explain(trace, segments=most)
    return found, html.unescape(
        explanation_page("t", found, over_time(trace), waiting_boxes(trace))
    )


def test_the_page_tells_how_many_segments_of_a_slow_step_are_left_out(tmp_path):
    with make_trace(tmp_path / "t", many_waits(53), targets=TARGETS, clock=CLOCK) as trace:
        found, page = page_of(trace, most=23)
    [step] = found.slowest
    [[kept, left]] = re.findall(r"has the (\d+) longest segments.*\n? (\d+) shorter ones", page)
    # Each wait and the time after it is a segment, and so is 1 ns before the first wait.
    assert (int(kept), int(left)) == (23, 107 - 23) == (len(step.segments), step.more_segments)
    rest = step.total_ns - sum(one["dur_ns"] for one in step.segments)
    assert f"({duration(rest)} together)" in page


def test_the_axis_of_a_slow_step_is_as_long_as_the_step(tmp_path):
    with make_trace(tmp_path / "t", many_waits(53), targets=TARGETS, clock=CLOCK) as trace:
        _, page = page_of(trace, most=5)
    assert '"range":[0,5.3]' in page


def test_a_page_with_all_segments_tells_of_none_left_out(tmp_path):
    with make_trace(tmp_path / "t", many_waits(53), targets=TARGETS, clock=CLOCK) as trace:
        found, page = page_of(trace, most=1000)
    assert found.slowest[0].more_segments == 0
    assert "left out" not in page


def names_of_bars(folder, tables):
    with make_trace(folder, tables, targets=TARGETS, clock=CLOCK) as trace:
        explain(trace, slowest=0)
        return over_time(trace)


def test_a_bar_of_one_step_has_its_epoch_and_number(tmp_path):
    tables = steps_of([2, 2])
    for mark in tables["phases"]:
        if "step" in mark:
            mark |= {"epoch": 3, "step": mark["step"] + 117}
    bars = names_of_bars(tmp_path / "t", tables)
    assert bars["called"].tolist() == ["step 3:117", "step 3:118"]
    [first, *_] = step_times(bars).data
    assert first.hovertemplate.startswith("%{customdata}: ")
    assert list(first.customdata) == ["step 3:117", "step 3:118"]


def test_a_bar_of_several_steps_is_called_their_mean(tmp_path):
    bars = names_of_bars(tmp_path / "t", steps_of([2] * 601))
    assert bars["called"].iloc[0] == "mean of 2 steps from 0:0 on"
    assert bars["called"].iloc[-2:].tolist() == ["mean of 2 steps from 0:598 on", "step 0:600"]


def test_a_bar_names_the_process_if_several_have_steps(tmp_path):
    bars = names_of_bars(tmp_path / "t", beside(steps_of([2]), steps_of([3]), "peer"))
    assert bars["called"].tolist() == ["step 0:0 of process 7", "step 0:0 of process 107"]
