"""Figures: what of a frame is drawn, and how."""

import pandas as pd
import pytest

from tracer.analysis.figures import park2023, prashanthi2022, prashanthi2023
from tracer.analysis.figures.comparison import ratios
from tracer.analysis.figures.dots import Axis, dots
from tracer.analysis.figures.memory import by_memory
from tracer.analysis.figures.style import COLOURS, SYMBOLS, colour, hues, joined, log_axis, text


@pytest.fixture
def frame():
    """Two models in two places; one has no value of ours, one none of the paper."""
    return pd.DataFrame(
        {
            "model": ["a", "b", "a", "b"],
            "where": ["host", "host", "one", "one"],
            "v": [1.0, None, 3.0, 4.0],
            "v_low": [0.5, None, 2.0, 3.0],
            "v_high": [1.5, None, 5.0, 5.0],
            "paper_v": [2.0, 8.0, None, None],
        }
    )


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_the_paper_s_values_are_hollow_and_ours_have_intervals(frame):
    figure = dots(frame, "v", Axis("v, s"), category="model", series="where", paper="paper_v")
    found = traces(figure)
    assert found.keys() == {"host", "host, the paper's", "one"}
    assert found["host, the paper's"].marker.symbol == f"{found['host'].marker.symbol}-open"
    assert found["host, the paper's"].marker.color == found["host"].marker.color
    assert list(found["one"].error_x.array) == [2, 1]
    assert list(found["one"].error_x.arrayminus) == [1, 1]
    assert list(found["one"].x) == [3, 4]
    assert figure.layout.xaxis.title.text == "v, s"
    assert list(figure.layout.yaxis.ticktext) == ["a", "b"]


def test_null_is_not_drawn_as_0(frame):
    figure = dots(frame, "v", Axis("v"), category="model", series="where", paper="paper_v")
    assert pd.isna(traces(figure)["host"].x[1])
    figure = dots(frame, "v", Axis("v"), category="model", series="where")
    assert list(traces(figure)["host"].x) == [1]


def test_series_differ_by_colour_and_by_marker(frame):
    found = dots(frame, "v", Axis("v"), category="model", series="where").data
    assert found[0].marker.color != found[1].marker.color
    assert found[0].marker.symbol != found[1].marker.symbol
    assert len(set(COLOURS)) == len(set(SYMBOLS)) == 6


def test_a_place_has_the_same_colour_in_every_figure():
    host, one, four, many = COLOURS[:4]
    places = ["host", "one container", "4 containers", "16 containers"]
    assert [colour(n) for n in hues(places).values()] == [host, one, four, many]
    assert [colour(n) for n in hues(["4 containers", "one container"]).values()] == [four, one]
    assert [colour(n) for n in hues(["one container", "one container"]).values()] == [one]
    assert hues(["by file", "host"]) == {"by file": 0, "host": 1}  # no places alone
    frame = pd.DataFrame({"model": ["a"], "where": ["one container"], "v": [1.0]})
    (drawn,) = dots(frame, "v", Axis("v"), category="model", series="where").data
    assert drawn.marker.color == one


def test_a_panel_has_room_for_its_own_categories(frame):
    figure = dots(frame, "v", Axis("v"), category="model", series="model", panel="where")
    assert [a.text for a in figure.layout.annotations] == ["host", "one"]
    assert list(figure.layout.yaxis.ticktext) == ["a"]
    assert list(figure.layout.yaxis2.ticktext) == ["a", "b"]
    assert figure.layout.xaxis.title.text is None
    assert figure.layout.xaxis2.title.text == "v"


def test_names_are_text():
    assert text("<b>&") == "&lt;b&gt;&amp;"
    assert joined([["a", "<i>"], ["", "c"], [None, 4]]) == ["a", "&lt;i&gt;, c, 4"]
    evil = pd.DataFrame({"model": ["<a href='x'>"], "where": ["<b>"], "v": [1.0]})
    figure = dots(evil, "v", Axis("v"), category="model", series="where", panel="model")
    assert "<a" not in figure.to_json().replace("\\u003c", "<")


def test_boxes_are_drawn_by_the_logarithm_and_empty_ones_are_empty():
    boxes = pd.DataFrame(
        {"model": "a", "from_s": [0.0, 1.0], "to_s": [1.0, 2.0], "first_page": [0, 5],
         "last_page": [4, 9], "writebacks": [1000, 10]}
    )  # fmt: skip
    figure = park2023.page_heat(boxes)
    (heat,) = figure.data
    assert list(heat.x) == [0.5, 1.5] and list(heat.y) == [2.5, 7.5]
    assert heat.z[0][0] == 3 and heat.z[1][1] == 1
    assert pd.isna(heat.z[0][1]) and pd.isna(heat.z[1][0])
    assert list(figure.layout.coloraxis.colorbar.ticktext) == ["1", "10", "100", "1,000"]


def test_time_without_write_backs_has_its_room():
    boxes = pd.DataFrame(
        {"model": "a", "from_s": [0.0, 3.0], "to_s": [1.0, 4.0], "first_page": [0, 10],
         "last_page": [4, 11], "writebacks": [1, 1]}
    )  # fmt: skip
    (heat,) = park2023.page_heat(boxes).data
    assert list(heat.x) == [0.5, 1.5, 2.5, 3.5] and list(heat.y) == [2.5, 7.5, 12.5]


def test_a_distribution_is_the_share_up_to_each_time():
    frame = pd.DataFrame(
        {
            "model": "a",
            "where": "host",
            "between": "wakes",
            "share": [0.0, 0.5, 1.0],
            "interval_s": [0.0, 1.0, 4.0],
        }
    )
    (line,) = park2023.interval_spread(frame).data
    assert list(line.x) == [1, 4] and list(line.y) == [0.5, 1]  # no logarithm of 0


def energy(**more):
    return pd.DataFrame(
        {"mode": ["train"], "model": ["a"], "settings": [""], "where": ["host"],
         "per": ["minibatch"], "energy_j": [100.0], "energy_j_low": [90.0],
         "energy_j_high": [110.0], **more}
    )  # fmt: skip


def test_energy_without_a_baseload_is_one_bar():
    figure = prashanthi2023.energy_split(energy(baseload_j=[60.0], increment_j=[40.0]))
    assert [bar.y[0] for bar in figure.data] == [60, 40]
    figure = prashanthi2023.energy_split(energy(baseload_j=[None], increment_j=[None]))
    assert [(bar.name, bar.y[0]) for bar in figure.data] == [("energy", 100)]
    assert figure.data[0].error_y.array[0] == 10
    assert figure.layout.yaxis.title.text == "energy per minibatch, J"


def test_runs_without_a_baseload_have_a_series_of_their_own_beside_others():
    split = energy(baseload_j=[60.0], increment_j=[40.0])
    both = pd.concat([split, energy(baseload_j=[None], increment_j=[None]).assign(where="jail")])
    figure = prashanthi2023.energy_split(both)
    found = {bar.name: [None if y != y else y for y in bar.y] for bar in figure.data}
    assert found == {
        "baseload": [60, None],
        "beyond the baseload": [40, None],
        "energy, baseload not recorded": [None, 100],
    }


def test_an_epoch_is_a_stack_of_what_it_was_spent_on():
    frame = pd.DataFrame(
        {"model": "a", "settings": "", "workers": [0, 4], "stall_s": [3.0, 1.0],
         "compute_s": [2.0, 2.0], "overhead_s": [0.5, 0.5], "epoch_s": [6.0, 4.0],
         "epoch_s_low": [5.0, 3.0], "epoch_s_high": [7.0, 5.0]}
    )  # fmt: skip
    figure = prashanthi2022.epoch_bars(frame, "workers", "workers")
    assert [trace.name for trace in figure.data] == [
        "fetch stall", "compute", "overhead", "whole epoch",
    ]  # fmt: skip
    assert list(figure.data[0].y) == ["0 workers", "4 workers"]
    assert list(figure.data[0].x) == [3.0, 1.0]
    assert len({trace.marker.color for trace in figure.data}) == 4


def test_each_model_s_epochs_have_an_axis_of_their_own():
    frame = pd.DataFrame(
        {"model": ["<b>", "<b>", "b"], "settings": ["", "medium hdd", ""], "workers": [0, 0, 4],
         **dict.fromkeys(("stall_s", "compute_s", "overhead_s"), 1.0), "epoch_s": 3.0,
         "epoch_s_low": 3.0, "epoch_s_high": 3.0}
    )  # fmt: skip
    figure = prashanthi2022.epoch_bars(frame, "workers", "workers")
    assert [note.text for note in figure.layout.annotations] == ["&lt;b&gt;", "b"]
    assert {trace.xaxis for trace in figure.data} == {"x", "x2"}
    assert list(figure.data[0].y) == ["0 workers, medium hdd", "0 workers"][::-1]
    assert sum(trace.showlegend for trace in figure.data) == 4
    assert not prashanthi2022.epoch_bars(frame.iloc[:0], "workers", "workers").data


def test_predictions_lie_beside_the_line_where_they_are_right():
    frame = pd.DataFrame(
        {"job": "a", "power_mode": ["cores 1", "<b>"], "epoch_s": [2.0, 4.0],
         "predicted_s": [2.0, 5.0], "profiled": [True, False]}
    )  # fmt: skip
    points, line = prashanthi2022.predicted_times(frame).data
    assert list(points.y) == [2, 5] and list(line.x) == list(line.y) == [2, 4]
    assert list(points.marker.symbol) == ["circle-open", "circle"]
    assert points.text[1] == "&lt;b&gt;"
    assert not prashanthi2022.predicted_times(frame.drop(columns="predicted_s")).data


def test_the_pareto_front_is_a_line_of_the_modes_that_are_on_it():
    frame = pd.DataFrame(
        {"job": "a", "power_mode": ["x", "y", "z"], "epoch_s": [1.0, 2.0, 3.0],
         "energy_j": [9.0, 10.0, 4.0], "on_front": [1.0, 0.0, 1.0]}
    )  # fmt: skip
    line, points = prashanthi2022.time_and_energy(frame).data
    assert list(line.x) == [1, 3] and list(points.x) == [1, 2, 3]
    assert not prashanthi2022.time_and_energy(frame.assign(energy_j=None)).data


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.03, 2.0], ["0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5"]),
        ([1.0, 4.0], ["0.9", "1", "2", "3", "4", "5"]),
        ([1.0, 1e6, float("inf"), 0.0, -3.0], ["1", "10", "100", "1,000", "1,000,000"]),
    ],
)
def test_labels_of_a_logarithmic_axis_are_whole_numbers_that_stand_alone(values, labels):
    axis = log_axis(values)
    shown = dict(zip(axis["ticktext"], axis["tickvals"], strict=True))
    assert all(float(label.replace(",", "")) == pytest.approx(at) for label, at in shown.items())
    assert set(labels) <= set(shown)
    inside = [at for at in shown.values() if min(v for v in values if v > 0) <= at <= 1e6]
    assert len([at for at in inside if at <= max(v for v in values if v < 1e9)]) < 12


def test_a_logarithmic_axis_of_one_value_has_room_beside_it():
    low, high = log_axis([100.0, 100.0])["range"]
    assert low < 2 < high and high - low < 1
    assert log_axis([]) == {"type": "log"}


def test_panels_of_shares_have_one_axis_that_ends_at_0_and_1(frame):
    shares = frame.assign(v=[0.1, None, 0.8, 0.9], v_low=-3.0, v_high=4.0, paper_v=[0.5] * 4)
    how = {"category": "model", "series": "where", "panel": "where", "paper": "paper_v"}
    figure = dots(shares, "v", Axis("share", percent=True), **how)
    ranges = {tuple(figure.layout[name].range) for name in ("xaxis", "xaxis2")}
    ((low, high),) = ranges
    assert -0.1 < low <= 0 and 1 <= high < 1.1
    beyond = dots(shares.assign(v=[-0.5, None, 0.8, 1.4]), "v", Axis("x", percent=True), **how)
    low, high = beyond.layout.xaxis.range
    assert low < -0.5 and high > 1.4  # a value is never cut off


def test_panels_of_shares_have_one_axis_without_intervals_too(frame):
    shares = frame.assign(v=[0.1, 0.2, 0.8, 0.9])
    how = {"category": "model", "series": "where", "panel": "where"}
    figure = dots(shares, "v", Axis("share", percent=True), **how)
    ((low, high),) = {tuple(figure.layout[name].range) for name in ("xaxis", "xaxis2")}
    assert low < 0.1 and high > 0.9


def test_a_model_with_a_range_has_bars_at_each_memory():
    mib = 1 << 20
    frame = pd.DataFrame(
        {
            "memory_bytes": [2 * mib, mib],
            "a_bytes": [5 * mib, 7 * mib],
            "a_bytes_low": [5 * mib, 4 * mib],
            "a_bytes_high": [6 * mib, 7 * mib],
            "b_bytes": [5 * mib, 9 * mib],
        }
    )
    found = traces(by_memory(frame, {"a": "A", "b": "B"}, of_an_epoch=True))
    assert (list(found["A"].x), list(found["A"].y)) == ([1, 2], [7, 5])
    assert list(found["A"].error_y.array) == [0, 1]
    assert list(found["A"].error_y.arrayminus) == [3, 0]
    assert found["B"].error_y.array is None
    same = by_memory(frame.assign(a_bytes_low=1, a_bytes_high=1), {"a": "A"}, of_an_epoch=False)
    assert same.data[0].error_y.array is None


@pytest.mark.parametrize("epoch, words", [(True, "read per epoch, MiB"), (False, "read, MiB")])
def test_the_axis_of_reads_tells_whether_they_are_of_an_epoch(epoch, words):
    frame = pd.DataFrame({"memory_bytes": [1], "a_bytes": [1]})
    assert by_memory(frame, {"a": "A"}, epoch).layout.yaxis.title.text == words


@pytest.mark.parametrize("ratio", [1.9, 8.0, 0.3, 400.0])
def test_the_axis_of_ratios_has_all_intervals_and_no_difference(ratio):
    frame = pd.DataFrame(
        {"topic": "calls", "measure": [f"call{n}" for n in range(5)], "group": "slow",
         "verdict": "changed", "lossy": False, "ratio": ratio, "ratio_low": 0.95 * ratio,
         "ratio_high": 1.05 * ratio}
    )  # fmt: skip
    axis = ratios(frame).layout.xaxis
    low, high = (10**end for end in axis.range)
    assert low < min(1, 0.95 * ratio) and max(1, 1.05 * ratio) < high
