"""The flame graph of waiting time: its boxes, and the stacks that it leaves out."""

import html
import re

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import JOB, PROCESSES, TARGETS
from tracer.analysis.explain.explanation import explain
from tracer.analysis.explain.over_time import over_time
from tracer.analysis.explain.waiting import waiting_boxes
from tracer.analysis.page.explanation import explanation_page

DRAWN = 2000
SHORTEST_NS = 10_000


def tables(stacks: int) -> dict[str, list[dict]]:
    """A step in which a thread sleeps in as many calls, in each one a nanosecond longer."""
    made: dict[str, list[dict]] = {
        "processes": PROCESSES, "python_stacks": [], "syscalls": [], "off_cpu": [], "phases": [],
    }  # fmt: skip
    now = 1000
    for number in range(stacks):
        length = SHORTEST_NS + number
        of = {"pid": JOB, "tid": JOB}
        made["syscalls"].append({"ts": now, "name": f"call{number}", "dur_ns": length + 2, **of})
        made["off_cpu"].append({"ts": now + 1, "dur_ns": length, "state": "S", **of})
        now += length + 10
    train = {"name": "train", "start": 500, "end": now + 500, "pid": JOB, "tid": JOB}
    step = {"name": "step", "start": 900, "end": now, "pid": JOB, "tid": JOB, "step": 0}
    made["phases"] = [train, step]
    return made


def drawn(folder, stacks):
    """The waiting time of such a step, and the sentences of its page on the graph."""
    with make_trace(folder, tables(stacks), targets=TARGETS) as trace:
        waiting = waiting_boxes(trace)
        page = explanation_page("t", explain(trace), over_time(trace), waiting)
    return waiting, html.unescape(re.search(r"A box is as wide as .*", page)[0])


def test_all_stacks_are_drawn_if_they_are_few(tmp_path):
    waiting, said = drawn(tmp_path / "t", DRAWN)
    assert (waiting.more_stacks, waiting.more_share) == (0, 0)
    [root] = waiting.boxes[waiting.boxes["depth"] == 0]["ms"]
    assert root == pytest.approx(sum(range(SHORTEST_NS, SHORTEST_NS + DRAWN)) / 1e6)
    assert "left out" not in said


def test_the_stacks_with_the_least_time_are_left_out_and_counted(tmp_path):
    more = 53
    waiting, said = drawn(tmp_path / "t", DRAWN + more)
    lengths = range(SHORTEST_NS, SHORTEST_NS + DRAWN + more)
    [root] = waiting.boxes[waiting.boxes["depth"] == 0]["ms"]
    assert root == pytest.approx(sum(lengths[more:]) / 1e6)
    assert waiting.more_stacks == more
    assert waiting.more_share == pytest.approx(sum(lengths[:more]) / sum(lengths))
    assert "53 more stacks with less time (2.3 % of the waiting time) are left out" in said


def test_a_trace_without_stacks_has_no_graph(tmp_path):
    made = tables(3)
    del made["python_stacks"]
    with make_trace(tmp_path / "t", made, targets=TARGETS) as trace:
        assert waiting_boxes(trace).boxes.empty
