"""An explanation tells during which steps events were lost."""

import json

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import TARGETS, steps_of

pytestmark = pytest.mark.slow

WAITS = [2, 40, 4, 30, 3]


@pytest.fixture
def lossy(tmp_path):
    """Five steps, and events that were lost within the second one; names are lost all the time."""
    tables = steps_of(WAITS)
    steps = sorted((one for one in tables["phases"] if one["name"] == "step"),
                   key=lambda one: one["start"])  # fmt: skip
    middle = (steps[1]["start"] + steps[1]["end"]) // 2
    tables["loss"] = [
        {"stream": "target-cpu0", "cpu": 0, "from": middle, "to": middle + 9, "count": 3},
        {"stream": "files", "from": 0, "to": steps[-1]["end"] + 1, "count": 1},
    ]
    make_trace(tmp_path / "t", tables, targets=TARGETS).close()
    return tmp_path / "t"


def test_json_says_which_steps_lost_events(lossy, tracer):
    told = json.loads(tracer("explain", lossy, "--slowest", "5", "--json").out)
    assert told["lossy"]
    assert told["lossy_steps"] == 1
    assert {one["step"]: one["lossy"] for one in told["slowest"]} == {
        0: False, 1: True, 2: False, 3: False, 4: False,
    }  # fmt: skip


def test_the_terminal_says_which_steps_lost_events(lossy, tracer):
    said = " ".join(tracer("explain", lossy, "--slowest", "2").out.split())
    assert "lost during 1 of the 5 steps, so waits may be missing or too short." in said
    first, second = said.split("Step 0:")[1:]
    assert first.startswith("1 took") and "Events were lost during it." in first
    assert second.startswith("3 took") and "lost" not in second


def test_the_page_says_which_steps_lost_events(lossy, tracer, tmp_path):
    tracer("explain", lossy, "--slowest", "2", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "during 1 of the 5 steps" in page
    assert page.count("Events were lost during it.") == 1


def test_a_loss_between_steps_is_that_of_none(tracer, tmp_path):
    """The warm-up before the first step loses events."""
    tables = steps_of(WAITS)
    first = min(one["start"] for one in tables["phases"] if one["name"] == "step")
    tables["loss"] = [{"stream": "target-cpu0", "cpu": 0, "from": first - 9, "to": first - 1}]
    make_trace(tmp_path / "t", tables, targets=TARGETS).close()
    said = " ".join(tracer("explain", tmp_path / "t").out.split())
    assert "Events were lost, but during none of the 5 steps." in said
    assert "lost during" not in said
