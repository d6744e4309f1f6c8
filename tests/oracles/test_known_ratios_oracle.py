"""`tracer compare` finds ratios that are known, with intervals that hold as often as they say."""

import numpy as np
import pytest

from tests.oracles.known_ratios import calls, draws, interval
from tests.support.traces import make_trace
from tracer.analysis.compare.ratio import ratio

pytestmark = pytest.mark.slow

CALLS = 15
"""The comparison has the calls of a trace that take the most time, and some 25 at least."""
JOB = {"pid": 7, "tid": 7, "comm": "job", "role": "target", "ppid": 1, "target": "job"}
OTHER = {"pid": 9, "tid": 9, "comm": "other", "role": "other", "ppid": 1}
TRAIN = ["python", "-m", "tracer.workloads", "train", "lenet", "--seed"]


def run(folder, values, seed=None, **tables):
    """A run with a call for each value."""
    target = {"name": "job", "role": "target", "kind": "pid", "pid": 7}
    if seed is not None:
        target["command"] = [*TRAIN, str(seed)]
    rows = {"processes": [JOB, OTHER], "syscalls": calls(values, {"pid": 7, "tid": 7})} | tables
    lost = {"events": 0, "windows": 0, "unknown": 0, "others": 0}
    if "loss" in tables:
        lost |= {"events": 5, "windows": 1}
    make_trace(folder, rows, targets=[target], loss=lost).close()
    return folder


def runs(folder, values, seeds=()):
    """Traces of a group, one for each column of the values."""
    folder.mkdir()
    return [
        run(folder / f"{at}.trace", values[:, at], *seeds[at : at + 1])
        for at in range(values.shape[1])
    ]


def compared(tracer, base, other, *options):
    """Returns the rows of a comparison by the number of their call."""
    groups = "--group", group("x", base), "--group", group("y", other)
    return rows_of(tracer("compare", *groups, *options, "--json").json)


def group(name, traces):
    return f"{name}={','.join(map(str, traces))}"


def rows_of(answer):
    """The rows of the time in each call, with their numbers."""
    found = {}
    for row in answer["rows"]:
        if row["measure"].startswith("time in call"):
            found[int(row["measure"].removeprefix("time in call"))] = row
    return found


def times(values):
    """Values as a trace keeps them: whole nanoseconds; in seconds."""
    return np.floor(values * 1000) / 1e9


def near(found, expected, half):
    """Returns how far an end of an interval is off, as a share of half its width (logarithms)."""
    return abs(np.log(found) - np.log(expected)) / half


@pytest.mark.parametrize("paired", [False, True])
def test_ratios_and_intervals_are_those_of_the_oracle(tmp_path, tracer, paired):
    rng = np.random.default_rng(11)
    common = 0.4 if paired else 0.0
    _, base, other = draws(rng, CALLS, 8, spread=0.05 if paired else 0.1, common=common)
    traces = runs(tmp_path / "x", base), runs(tmp_path / "y", other)
    found = compared(tracer, *traces, *(["--pair"] if paired else []))
    off = []
    for number, row in found.items():
        x, y = times(base[number]), times(other[number])
        assert row["base_mean"] == pytest.approx(x.mean(), rel=1e-6)
        assert row["mean"] == pytest.approx(y.mean(), rel=1e-6)
        assert row["median"] == pytest.approx(np.median(y), rel=1e-6)
        assert row["ratio"] == pytest.approx(y.mean() / x.mean(), rel=1e-6)
        low, high = interval(x, y, paired)
        half = np.log(high / low) / 2
        off += [near(row["ratio_low"], low, half), near(row["ratio_high"], high, half)]
    assert len(off) == 2 * CALLS
    assert np.median(off) < 0.05
    assert max(off) < 0.3


def test_pairs_are_those_of_the_seeds_in_whatever_order_traces_are_given(tmp_path, tracer):
    rng = np.random.default_rng(12)
    _, base, other = draws(rng, CALLS, 6, spread=0.01, common=0.5)
    order = [3, 1, 5, 0, 4, 2]
    x = runs(tmp_path / "x", base, seeds=range(6))
    y = runs(tmp_path / "y", other[:, order], seeds=order)
    found = compared(tracer, x, y)
    for number, row in found.items():
        low, high = interval(times(base[number]), times(other[number]), True)
        half = np.log(high / low) / 2
        assert near(row["ratio_low"], low, half) < 0.5
        assert near(row["ratio_high"], high, half) < 0.5
        assert row["ratio_high"] / row["ratio_low"] < 1.3  # without pairs, more than 2


@pytest.mark.parametrize("paired", [False, True])
def test_intervals_hold_as_often_as_they_say(paired):
    """380 of 400 intervals of 95 % hold; fewer than 364 or more than 393 with p = 0.001."""
    rng = np.random.default_rng(13)
    true, base, other = draws(rng, 400, 8, spread=0.08, common=0.4 if paired else 0.0)
    found = [ratio(x, y, paired) for x, y in zip(base, other, strict=True)]
    held = sum(one.low <= at <= one.high for one, at in zip(found, true, strict=True))
    assert 364 <= held <= 393


def corrected(values):
    """Benjamini and Hochberg 1995: the least share of false discoveries at which each is one."""
    order, found, least = np.argsort(values)[::-1], np.empty(len(values)), 1.0
    for rank, at in zip(range(len(values), 0, -1), order, strict=True):
        least = min(least, values[at] * len(values) / rank)
        found[at] = least
    return found


def test_chance_is_corrected_for_all_measures(tmp_path, tracer):
    _, base, other = draws(np.random.default_rng(14), CALLS, 5, spread=0.2)
    x, y = runs(tmp_path / "x", base), runs(tmp_path / "y", other)
    answer = tracer("compare", "--group", group("x", x), "--group", group("y", y), "--json").json
    rows = [row for row in answer["rows"] if row["p"] is not None]
    assert answer["tests"] == len(rows)
    expected = corrected(np.array([row["p"] for row in rows]))
    assert [row["p_corrected"] for row in rows] == pytest.approx(list(expected))
    verdicts = ["changed" if p <= 0.05 else "inside the noise" for p in expected]
    assert [row["verdict"] for row in rows] == verdicts
    assert len(set(verdicts)) == 2


def test_groups_the_other_way_round_give_the_inverse(tmp_path, tracer):
    _, base, other = draws(np.random.default_rng(15), 10, 5)
    x, y = runs(tmp_path / "x", base), runs(tmp_path / "y", other)
    one, back = compared(tracer, x, y), compared(tracer, y, x)
    for number, row in one.items():
        assert row["ratio"] * back[number]["ratio"] == pytest.approx(1)


def test_a_single_run_has_no_interval(tmp_path, tracer):
    _, base, other = draws(np.random.default_rng(16), 3, 4)
    found = compared(tracer, runs(tmp_path / "x", base), runs(tmp_path / "y", other[:, :1]))
    for number, row in found.items():
        expected = times(other[number, :1]).mean() / times(base[number]).mean()
        assert row["ratio"] == pytest.approx(expected)
        assert row["ratio_low"] is None
        assert row["ratio_high"] is None
        assert row["verdict"] != "changed"


def test_lost_events_mark_the_rows(tmp_path, tracer):
    _, base, other = draws(np.random.default_rng(17), 3, 3)
    gap = {"stream": "ftrace-target", "cpu": 0, "from": 1000, "to": 2000, "count": 5}
    x = runs(tmp_path / "x", base)
    y = [*runs(tmp_path / "y", other[:, :2]), run(tmp_path / "l", other[:, 2], loss=[gap])]
    assert all(row["lossy"] for row in compared(tracer, x, y).values())
    assert not any(
        row["lossy"] for row in compared(tracer, x, runs(tmp_path / "z", other)).values()
    )


def test_unequal_numbers_are_no_pairs(tmp_path, tracer):
    _, base, other = draws(np.random.default_rng(18), 3, 6)
    x, y = runs(tmp_path / "x", base), runs(tmp_path / "y", other[:, :5])
    for number, row in compared(tracer, x, y).items():
        assert (row["base_runs"], row["runs"], row["pairs"]) == (6, 5, None)
        expected = times(other[number, :5]).mean() / times(base[number]).mean()
        assert row["ratio"] == pytest.approx(expected)
    options = "--group", group("x", x), "--group", group("y", y), "--pair"
    refused = tracer("compare", *options, status=2)
    assert "pair" in refused.err
