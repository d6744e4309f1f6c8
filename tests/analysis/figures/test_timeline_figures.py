"""Lanes as figures: one axis of time, losses shaded, names as text, colours that keep."""

import numpy as np
import pandas as pd
import pytest

from tests.support.timeline import MS, TENTHS, made
from tracer.analysis.figures import heat, timeline
from tracer.analysis.figures.style import COLOURS, NEUTRAL
from tracer.analysis.report.tables import ROLES
from tracer.analysis.timeline.phases import phases

NONE_LOST = pd.DataFrame(columns=["from_s", "to_s", "gaps", "events"])
LOST = pd.DataFrame({"from_s": [1.0], "to_s": [1.5], "gaps": [1], "events": [7]})


def bins(**series):
    begins = np.arange(4) * 0.5
    return pd.DataFrame({"from_s": begins, "to_s": begins + 0.5, **series})


def spans(**more):
    row = {"place": 0, "thread": "python 1", "depth": 0, "name": "train", "epoch": None,
           "step": None, "from_s": 0.0, "to_s": 2.0, "spans": 1, "ended": True}  # fmt: skip
    return pd.DataFrame([row | one for one in more.pop("rows", [more])])


LATENCIES = pd.DataFrame(
    {"series": ["issued to completed"] * 2, "from_s": [0.0, 1.0], "to_s": [0.5, 1.5],
     "requests": [3, 1], "p50_ms": [2.0, 0.0], "p99_ms": [9.0, 1.0], "max_ms": [9.0, 1.0]}
)  # fmt: skip
LINES = pd.DataFrame(
    {"series": ["job"] * 5 + ["machine"], "at_s": [0.0, 0.1, 0.2, 0.3, 1.9, 0.0],
     "value": [1.0, 2.0, 3.0, 4.0, 5.0, 9.0]}
)  # fmt: skip
CELLS = pd.DataFrame(
    {"from_s": [0.0, 0.5, 0.5], "to_s": [0.5, 1.0, 1.0], "row": [0, 0, 1],
     "dev": ["7:0", "7:0", "8:0"],
     "first_page": [0, 0, 1 << 60], "last_page": [7, 7, (1 << 60) + 7], "pages": [1000, 10, 1],
     "file": ["/a", "/a", "<b>"]}
)  # fmt: skip
ALL = [
    (timeline.areas, bins(periodic=[0.0, 1, 2, 3])), (timeline.lines, LINES),
    (timeline.latencies, LATENCIES), (timeline.spans, spans()), (heat.places, CELLS),
    (heat.files, CELLS),
]  # fmt: skip


@pytest.mark.parametrize(("draw", "frame"), ALL, ids=lambda value: getattr(value, "__name__", ""))
def test_lanes_have_one_axis_of_time_and_shade_what_was_lost(draw, frame):
    figure = draw(frame, "x/s", 2.0, LOST)
    assert list(figure.layout.xaxis.range) == [0, 2]
    assert (figure.layout.margin.l, figure.layout.margin.r) == (76, 22)
    assert figure.layout.yaxis.fixedrange is True
    shaded = [shape for shape in figure.layout.shapes if shape.name == "lost"]
    assert [(shape.x0, shape.x1, shape.yref) for shape in shaded] == [(1.0, 1.5, "paper")]
    clear = draw(frame, "x/s", 2.0, NONE_LOST)
    assert not [shape for shape in clear.layout.shapes if shape.name == "lost"]


def test_areas_lie_on_each_other_and_known_series_keep_their_colour():
    figure = timeline.areas(bins(odd=[1.0, 1, 1, 1], sync=[1.0, 2, 3, 4]), "x/s", 2.0, NONE_LOST)
    sync, odd = figure.data  # the top of the pile is drawn first
    assert (sync.fill, sync.line.shape, sync.dx) == ("tozeroy", "hv", 0.5)
    assert list(sync.customdata) == [1, 2, 3, 4, 4]  # the last one holds until the axis ends
    assert list(odd.y) == [1, 1, 1, 1, 1] and list(sync.y) == [2, 3, 4, 5, 5]
    assert sync.line.color == COLOURS[2] and odd.line.color != COLOURS[2]
    rest = timeline.areas(bins(**{"the rest": [1.0, 1, 1, 1]}), "x/s", 2.0, NONE_LOST).data[0]
    assert rest.line.color == NEUTRAL
    assert figure.layout.yaxis.title.text == "x/s"


def test_roles_of_threads_in_one_lane_look_apart():
    frame = bins(**{role: [1.0, 1, 1, 1] for role in ROLES})
    drawn = timeline.areas(frame, "x/s", 2.0, NONE_LOST).data
    assert len({one.line.color for one in drawn}) == len(ROLES)


def test_a_line_is_broken_where_values_are_missing():
    job, machine = timeline.lines(LINES, "%", 2.0, NONE_LOST).data
    assert np.isnan(job.y[4]) and list(job.y[:4]) == [1, 2, 3, 4] and job.y[5] == 5
    assert job.line.dash != machine.line.dash and machine.mode == "markers"


def test_the_line_of_all_other_series_is_grey():
    rest = LINES.assign(series=["job"] * 5 + ["the rest"])
    job, others = timeline.lines(rest, "MiB", 2.0, NONE_LOST).data
    assert (job.line.color, others.line.color) == (COLOURS[0], NEUTRAL)


def test_a_latency_of_0_has_no_place_on_a_logarithmic_axis():
    median, high = timeline.latencies(LATENCIES, "ms", 2.0, NONE_LOST).data
    assert median.y[0] == 2 and np.isnan(median.y[1]) and list(high.y) == [9, 1]
    assert median.marker.symbol != high.marker.symbol


@pytest.mark.parametrize("ends", [(0.019, 0.083), (0.019, 0.019), (0.2, 0.9), (0.01, 900.0)])
def test_an_axis_of_latencies_has_numbers_but_not_too_many(ends):
    known = LATENCIES.assign(p50_ms=min(ends), p99_ms=max(ends))
    axis = timeline.latencies(known, "ms", 2.0, NONE_LOST).layout.yaxis
    low, high = (axis.range and [10**end for end in axis.range]) or ends
    shown = [said for at, said in zip(axis.tickvals, axis.ticktext, strict=True)
             if low <= at <= high]  # fmt: skip
    assert 1 <= len(shown) <= 6 and all(float(said) for said in shown)


def test_phases_are_bars_below_their_thread_and_inner_ones_below_outer_ones():
    rows = [{"name": "train"}, {"name": "step", "depth": 1, "step": 3, "to_s": 0.5},
            {"name": "fetch", "depth": 2, "to_s": 0.001},
            {"place": 1, "thread": "<b>", "name": "own", "spans": 40, "ended": False}]  # fmt: skip
    figure = timeline.spans(spans(rows=rows), "", 2.0, NONE_LOST)
    found = {bar.name: bar for bar in figure.data}
    assert found["train"].y[0] < found["step"].y[0] < found["fetch"].y[0] < found["own"].y[0]
    assert (found["step"].base[0], found["step"].x[0]) == (0.0, 0.5)
    assert (found["step"].text[0], found["fetch"].text[0]) == ("step 3", "")
    assert "own x 40" in found["own"].customdata[0] and "did not end" in found["own"].customdata[0]
    assert [note.text for note in figure.layout.annotations] == ["python 1", "&lt;b&gt;"]
    looks = {(bar.marker.color, bar.marker.pattern.shape) for bar in figure.data}
    assert len(looks) == 4


def test_all_phases_of_pytorch_look_apart():
    names = ["train", "inference", "data_load", "model_load", "eval", "epoch", "step", "fetch",
             "forward", "backward", "optimizer", "checkpoint"]  # fmt: skip
    figure = timeline.spans(spans(rows=[{"name": name} for name in names]), "", 2.0, NONE_LOST)
    looks = {(bar.marker.color, bar.marker.pattern.shape) for bar in figure.data}
    assert len(looks) == len(names)


def test_names_of_phases_with_the_most_time_look_apart_and_all_others_share_a_colour():
    names = ["train", "step", "fetch", *(f"own {n}" for n in range(17))]
    rows = [{"name": name, "to_s": 9 - n / 10} for n, name in enumerate(names)]
    *own, rest = timeline.spans(spans(rows=rows), "", 2.0, NONE_LOST).data
    looks = {(bar.marker.color, bar.marker.pattern.shape) for bar in own}
    assert {bar.name for bar in own} == set(names[:18]) and len(looks) == len(own) == 18
    assert (rest.name, rest.marker.color) == ("the rest", NEUTRAL)
    assert rest.text == ("own 15", "own 16") and rest.customdata[1].startswith("own 16, 7.100 s")


def test_the_note_tells_how_many_names_of_phases_share_a_colour(tmp_path):
    of = {"pid": 1, "tid": 1}
    marks = [
        {**of, "name": f"p{n}", "start": 40 * n * MS, "end": (40 * n + 9) * MS}
        for n in range(timeline.MOST_NAMES + 2)
    ]
    with made(tmp_path, phases=marks) as trace:
        lane = phases(trace, TENTHS)
    assert lane.note == "Names of phases with less time that share a colour: 2."


def test_a_heat_map_is_by_the_logarithm_and_says_the_number():
    (map_,) = heat.places(CELLS, "pages", 2.0, NONE_LOST).data
    assert map_.z[0][0] == 3 and map_.z[1][1] == 0 and np.isnan(map_.z[1][0])
    assert map_.customdata[0][0] == 1000
    assert map_.y[1].startswith("8:0 from page 1,152,921,504,606,846,976")
    assert len(heat.places(CELLS, "pages", 2.0, NONE_LOST).layout.shapes) == 1  # between devices


def test_files_are_numbered_and_their_names_are_text():
    (map_,) = heat.files(CELLS, "pages", 2.0, NONE_LOST).data
    assert list(map_.y) == ["1. /a", "2. &lt;b&gt;"]


def test_names_of_an_enemy_are_text_in_every_lane():
    evil = "<a href='x'>\x1b[31m\n\u202e" + "y" * 500
    figures = [
        timeline.areas(bins(**{evil: [1.0, 1, 1, 1]}), "x", 2.0, NONE_LOST),
        timeline.lines(LINES.assign(series=evil), "x", 2.0, NONE_LOST),
        timeline.spans(spans(name=evil, thread=evil), "", 2.0, NONE_LOST),
        heat.places(CELLS.assign(dev=evil), "x", 2.0, NONE_LOST),
        heat.files(CELLS.assign(file=evil), "x", 2.0, NONE_LOST),
    ]
    for figure in figures:
        told = figure.to_json().replace("\\u003c", "<")
        assert "<a" not in told and "\\u001b" not in told and "\\u202e" not in told
        assert "y" * 100 not in told
