"""Groups of traces side by side: ratios, intervals, what is noise, and what has to be said."""

import json

import pandas as pd
import pytest

from tests.support import drawn_pages
from tests.support.compared import MS, S, make_repeats, make_times, row
from tests.support.compared import make_run as run
from tests.support.studies import EVIL
from tests.support.traces import make_trace
from tracer.analysis.compare.comparison import compare
from tracer.analysis.compare.measured import MACHINES_PAGES, REQUESTS, TARGETS_PAGES, measured
from tracer.analysis.compare.ratio import BOOTSTRAP, CONSTANT
from tracer.analysis.compare.verdicts import CHANGED, MISSING, NOISE, ROWS, UNTOLD
from tracer.analysis.figures.comparison import ratios
from tracer.probes.errors import BadTrace, UsageError
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def repeats(tmp_path_factory):
    """Runs of a base and of one that is 1.5 times as slow, with 2 % of noise."""
    return make_repeats(tmp_path_factory.mktemp("repeats"))


@pytest.fixture(scope="module")
def compared():
    """Such a base beside the slow runs and those that are like it."""
    return drawn_pages.compared()


def test_a_known_change_is_found_first_and_what_is_equal_is_noise(compared):
    found = compared
    assert [group.name for group in found.grouping.groups] == ["base", "slow", "same"]
    step = row(found, "minibatch", "train: end to end", "slow")
    assert step["verdict"] == CHANGED and step["ratio"] == pytest.approx(1.5, rel=0.05)
    assert step["ratio_low"] < 1.5 < step["ratio_high"]
    assert (step["runs"], step["base_runs"], step["method"]) == (5, 5, BOOTSTRAP)
    assert row(found, "minibatch", "train: end to end", "same")["verdict"] == NOISE
    assert row(found, "calls", "time in read", "slow")["verdict"] == NOISE
    assert found.rows.columns.tolist() == ROWS
    first = found.rows.iloc[0]
    assert (first["group"], first["weight"]) == ("slow", 1.0)
    assert set(found.rows.loc[found.rows["group"] == "same", "verdict"]) <= {NOISE, MISSING}
    assert found.tests == found.rows["p"].notna().sum() > 10
    corrected = found.rows.dropna(subset=["p"])
    assert (corrected["p_corrected"] >= corrected["p"] - 1e-12).all()


def test_one_run_of_each_has_ratios_and_no_verdict(tmp_path):
    found = compare([run(tmp_path / "a.trace", 1), run(tmp_path / "b.trace", 2)])
    step = row(found, "minibatch", "train: end to end")
    assert (step["ratio"], step["verdict"]) == (2, UNTOLD)
    assert pd.isna(step["ratio_low"]) and step["why"] == "one run has no spread"
    assert CHANGED not in set(found.rows["verdict"])
    assert sum("is a single run" in note for note in found.notes) == 2


def test_a_measure_that_one_group_lacks_is_null_with_the_reason(tmp_path):
    first = run(tmp_path / "a.trace", 1)
    with make_trace(tmp_path / "b.trace", {"syscalls": []}) as trace:
        second = trace.folder
    step = row(compare([first, second]), "minibatch", "train: end to end")
    assert step["verdict"] == MISSING and pd.isna(step["ratio"])
    assert step["why"] == "not in b: a trace has no table phases"


def test_a_call_that_is_never_made_is_0_and_not_missing(tmp_path):
    first, second = run(tmp_path / "a.trace", 1), tmp_path / "b.trace"
    tables = {"syscalls": [{"ts": 1, "tid": 7, "name": "write", "dur_ns": 1000}]}
    make_trace(second, tables, clock={"name": "mono", "start_ns": 0, "end_ns": 100 * S}).close()
    found = compare([first, second])
    assert row(found, "calls", "time in read")["ratio"] == 0
    assert row(found, "calls", "time in write")["why"] == "it is 0 in the base"


def of_calls(folder, calls, **recorded):
    """A trace of these calls, each so many microseconds long in all."""
    rows = [
        {"ts": n, "tid": 7, "name": name, "dur_ns": us * 1000, "ret": 0}
        for n, (name, us) in enumerate(calls.items())
    ]
    clock = {"name": "mono", "start_ns": 0, "end_ns": 100 * S, **recorded}
    make_trace(folder, {"syscalls": rows}, clock=clock).close()
    return folder


def test_a_rate_of_calls_is_of_the_time_in_which_calls_were_recorded(tmp_path):
    names = {f"call{n}": 100 for n in range(10)}
    whole = of_calls(tmp_path / "a.trace", names)
    part = of_calls(tmp_path / "b.trace", names, targets_from_ns=0, targets_until_ns=50 * S)
    found = row(compare([whole, part]), "calls", "all")
    assert (found["base_mean"], found["mean"]) == (0.1, 0.2)


def test_a_call_counts_as_it_was_made_however_many_took_longer(tmp_path):
    many = {f"call{n}": 100 + n for n in range(40)}
    first = of_calls(tmp_path / "a.trace", {"close": 50})
    found = compare([first, of_calls(tmp_path / "b.trace", {"close": 25, **many})])
    assert row(found, "calls", "time in close")["ratio"] == pytest.approx(0.5)
    assert row(found, "calls", "close")["ratio"] == 1
    assert row(found, "calls", "time in call39")["base_mean"] == 0
    shown = set(found.rows["measure"])
    assert "time in call20" in shown and "time in call19" not in shown
    assert found.left_out == {"calls": 40}
    assert any("40 measures of others are left out" in note for note in found.notes)


def test_a_comparison_of_all_calls_leaves_none_out(tracer, tmp_path):
    few = {f"call{n}": 100 + n for n in range(20)}
    paths = [of_calls(tmp_path / f"{name}.trace", few) for name in "ab"]
    told = tracer("compare", *paths, "--json").json
    assert told["left_out"] == {} and not any("left out" in note for note in told["notes"])
    more = of_calls(tmp_path / "c.trace", {**few, "slow": 200})
    told = tracer("compare", paths[0], more, "--json").json
    assert told["left_out"] == {}, "each leads in one of the traces"
    both = [of_calls(tmp_path / f"{name}.trace", {**few, "slow": 200}) for name in "de"]
    text = tracer("compare", *both).out
    assert "of each trace with the most time are compared" in " ".join(text.split())
    assert tracer("compare", *both, "--json").json["left_out"] == {"calls": 2}


def test_a_call_of_a_trace_with_too_many_names_is_not_said_to_be_0(tmp_path):
    many = {f"call{n}": 100 for n in range(2000)}
    first = of_calls(tmp_path / "a.trace", {"close": 50})
    found = compare([first, of_calls(tmp_path / "b.trace", {"close": 25, **many})])
    close = row(found, "calls", "time in close")
    assert (close["verdict"], close["why"]) == (
        MISSING, "not in b: it has too many names to compare all of them"
    )  # fmt: skip
    assert row(found, "calls", "all")["ratio"] == pytest.approx(2001)


def test_a_stage_that_began_before_the_recording_is_whole_and_its_recorded_part_is_its_weight(
    tmp_path,
):
    phases = [{"pid": 7, "tid": 7, "name": "train", "start": 0, "end": 60 * S}]
    clock = {"name": "mono", "start_ns": 50 * S, "end_ns": 90 * S}
    with make_trace(tmp_path / "t", {"phases": phases}, clock=clock) as trace:
        found = measured(trace).frame.set_index(["topic", "measure"]).loc["stages", "train"]
    assert (found["value"], found["weight"]) == (60, 0.25)


def test_times_have_their_median_and_tail_beside_the_mean(tmp_path):
    with make_times(tmp_path / "t") as trace:
        found = measured(trace).frame.set_index(["topic", "measure"])["value"]
        of_one = measured(trace, dev="8:0").frame.set_index(["topic", "measure"])["value"]
    for topic, label in ((REQUESTS, "write: service"), ("syncs", "a call")):
        # Values 1 to 100 ms, interpolated: rank 0.99 * 99 is between 99 and 100.
        known = {"": 50.5, ", p50": 50.5, ", p99": 99.01}
        for end, value in known.items():
            assert found[topic, f"{label}{end}"] == pytest.approx(value, rel=1 / 128), (label, end)
    assert found["minibatch", "train: end to end, p50"] == pytest.approx(50.5, rel=1 / 128)
    assert found["minibatch", "train: end to end, p95"] == pytest.approx(95.05, rel=1 / 128)
    assert found[REQUESTS, "write: queue, p99"] == 2
    assert found["syncs", "fsync and the like"] == pytest.approx(5.05)
    # The even ones: 2, 4, ... 100.
    assert of_one[REQUESTS, "write: service"] == pytest.approx(51)
    assert of_one[REQUESTS, "write: service, p50"] == pytest.approx(51, rel=1 / 128)


def test_a_request_to_a_loop_device_counts_once(tmp_path):
    """The device lies on a partition, and has requests of its own."""
    disks = [
        {"dev": "8:0", "bytes": 1 << 40},
        {"dev": "8:1", "bytes": 1 << 28, "partition_of": "8:0", "start": 2048},
        {"dev": "7:0", "bytes": 1 << 28, "on": ["8:1"], "backing_file": "/dev/sda1"}
        | {"backing_ino": None},
    ]
    block = [
        {"ts": S + ms * MS, "pid": 7, "tid": 7, "event": event, "dev": dev, "sector": sector,
         "nr_sector": 8, "rwbs": "R"}
        for ms, event, dev, sector in (
            (0, "issue", "7:0", 8), (1, "issue", "8:0", 2056), (5, "complete", "8:0", 2056),
            (8, "complete", "7:0", 8), (20, "issue", "8:0", 1 << 30),
            (22, "complete", "8:0", 1 << 30),
        )
    ]  # fmt: skip
    clock = {"name": "mono", "start_ns": 0, "end_ns": 10 * S}
    with make_trace(tmp_path / "t", {"block": block}, clock=clock, disks=disks) as trace:
        for dev, (per_s, mean_ms) in {None: (0.2, 5), "8:0": (0.2, 3)}.items():
            found = measured(trace, dev).frame.set_index(["topic", "measure"])["value"]
            assert found[REQUESTS, "read"] == pytest.approx(per_s)
            assert found[REQUESTS, "read: service"] == pytest.approx(mean_ms)


def test_quantiles_have_ratios_and_intervals_as_means_have(tmp_path):
    paths = []
    for name, factor in (("a", 1), ("b", 2)):
        for n in range(5):
            with make_times(tmp_path / f"{name}-{n}.trace", factor + 0.01 * n) as trace:
                paths.append(trace.folder)
    found = compare(paths)
    for topic, measure in (
        (REQUESTS, "write: service, p99"), ("syncs", "a call, p50"),
        ("minibatch", "train: end to end, p95"),
    ):  # fmt: skip
        one = row(found, topic, measure)
        assert one["ratio"] == pytest.approx(2.02 / 1.02, rel=0.01)
        assert one["ratio_low"] < one["ratio"] < one["ratio_high"]
        assert (one["verdict"], one["method"]) == (CHANGED, BOOTSTRAP)
    assert row(found, REQUESTS, "write: queue, p50")["method"] == CONSTANT


def beside(folder, others, **manifest):
    """A target that dirties and writes 5 pages, beside another job that does so with `others`."""
    rows = {"dirty": [], "block": [], "processes": []}
    for pid, target, pages in ((7, "job", 5), (8, None, others)):
        process = {"pid": pid, "tid": pid, "comm": "python"}
        role = {"role": "target", "target": target} if target else {"role": "other"}
        rows["processes"].append(process | role)
        at = {"pid": pid, "tid": pid, "dev": "8:0"}
        for page in range(pages):
            ts = S * pid + 10 * page
            rows["dirty"].append(at | {"ts": ts, "event": "dirty_folio", "ino": pid, "index": page})
            rows["block"].append(
                at | {"ts": ts + 1000, "event": "bio_queue", "rwbs": "WS", "nr_sector": 8}
                | {"sector": 8 * (page + 1000 * pid)}
            )  # fmt: skip
    manifest.setdefault("targets", [{"name": "job", "role": "target", "kind": "pid", "pid": 7}])
    clock = {"name": "mono", "start_ns": 0, "end_ns": 100 * S}
    rows["dirty"].sort(key=lambda one: one["ts"])
    rows["block"].sort(key=lambda one: one["ts"])
    make_trace(folder, rows | {"syscalls": [
        {"ts": S * pid - 1, "pid": pid, "tid": pid, "name": "fsync", "dur_ns": S // 2, "ret": 0}
        for pid in (7, 8)
    ], "file_writes": [
        {"ts": S * pid, "pid": pid, "tid": pid, "event": "fsync", "dev": "8:0", "ino": pid}
        for pid in (7, 8)
    ]}, clock=clock, **manifest).close()  # fmt: skip
    return folder


def test_another_job_s_pages_are_the_machine_s_and_not_the_target_s(tmp_path):
    found = compare([beside(tmp_path / "a.trace", 5), beside(tmp_path / "b.trace", 45)])
    assert row(found, TARGETS_PAGES, "all")["ratio"] == 1
    assert row(found, MACHINES_PAGES, "all")["ratio"] == 5


def test_pages_of_targets_that_nobody_can_tell_are_not_zero(tmp_path):
    machine = [{"name": "machine", "role": "target", "kind": "machine", "pid": 0}]
    place = beside(tmp_path / "a.trace", 5, targets=machine)
    with Trace(place) as trace:
        found = measured(trace)
    assert TARGETS_PAGES not in set(found.frame["topic"])
    assert "the whole machine was recorded" in found.whys[TARGETS_PAGES]
    assert MACHINES_PAGES in set(found.frame["topic"])


def test_a_trace_without_any_sync_has_no_times_of_them(tmp_path):
    with make_times(tmp_path / "a.trace") as trace:
        first = trace.folder
    found = compare([first, run(tmp_path / "b.trace", 1)])
    assert row(found, "syncs", "fsync and the like")["ratio"] == 0
    of_calls = row(found, "syncs", "a call, p99")
    assert (of_calls["verdict"], pd.isna(of_calls["ratio"])) == (MISSING, True)


def test_the_comparison_names_what_it_cannot_compare(tmp_path):
    a = run(tmp_path / "a.trace", 1)
    with pytest.raises(UsageError, match="needs two traces; e"):
        compare([a])
    with pytest.raises(UsageError, match=r"needs two traces: .*a\.trace is named twice, but"):
        compare([a, a])
    with pytest.raises(UsageError, match="needs two groups"):
        compare([], {"x": [a, run(tmp_path / "b.trace", 1)]})
    with pytest.raises(UsageError, match="x has 1 run and y 2 runs; --pair needs the same number"):
        three = [run(tmp_path / f"{n}.trace", 1) for n in range(2)]
        compare([], {"x": [a], "y": three}, pair=True)
    with pytest.raises(BadTrace):
        compare([a, tmp_path / "none.trace"])
    empty = []
    for name in ("e.trace", "f.trace"):
        with make_trace(tmp_path / name, {}) as trace:
            empty.append(trace.folder)
    with pytest.raises(UsageError, match="no measures to compare"):
        compare(empty)


def test_several_groups_stand_side_by_side(tracer, repeats):
    text = tracer("compare", *[path for paths in repeats.values() for path in paths]).out
    assert max(map(len, text.splitlines())) <= 80
    line = next(line for line in text.splitlines() if "minibatch: train: end" in line)
    assert line.count("[") == 2 and "~" in line  # changed in one, noise in the other
    assert r"\x0a" not in text


def test_the_verb_prints_what_changed_and_what_is_noise(tracer, repeats):
    paths = [*repeats["base"], *repeats["slow"]]
    text = tracer("compare", *paths).out
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("Changed, most important first") < text.index("Inside the noise")
    assert "base (the base): 5 runs" in text and "ratios were tested" in text
    few = [*repeats["base"][:2], *repeats["slow"][:2]]
    told = tracer("compare", *few, "--json").json
    assert [group["name"] for group in told["groups"]] == ["base", "slow"]
    given = tracer(
        "compare", "--group", f"x={','.join(map(str, repeats['slow']))}",
        "--group", f"y={','.join(map(str, repeats['base']))}", "--pair", "--json",
    ).json  # fmt: skip
    assert given["rows"][0]["verdict"] == CHANGED and given["tests"] > 5
    step = next(one for one in given["rows"] if one["measure"] == "train: end to end")
    assert step["base"] == "x" and step["pairs"] == 5
    assert step["ratio"] == pytest.approx(1 / 1.5, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "needs two traces"),
        (("--group", "x"), "'x' is not a group"),
        (("--group", "x=a", "--group", "x=b"), "given twice"),
        (("t", "--group", "x=a"), "some are not"),
    ],
)
def test_mistakes_in_groups_are_usage_errors(tracer, arguments, said):
    assert said in tracer("compare", *arguments, status=2).err


def test_a_trace_of_a_group_may_have_commas_in_its_name(tracer, tmp_path):
    names = ("a,b.trace", "c.trace", "d,,e.trace")
    for name in names:
        with make_trace(tmp_path / name, {"syscalls": [], "block": []}):
            pass
    groups = ("--group", r"x=a\,b.trace,c.trace", "--group", r"y=d\,\,e.trace")
    found = tracer("compare", *groups, "--json").json["groups"]
    assert [[one["path"] for one in group["traces"]] for group in found] == [
        ["a,b.trace", "c.trace"],
        ["d,,e.trace"],
    ]
    said = tracer("compare", "--group", "x=a,b.trace", "--group", "y=c.trace", status=2).err
    assert said == (
        "tracer: a,b.trace is one path, and commas separate the traces of a group; write its commas"
        " with a backslash: --group 'x=a\\,b.trace'\n"
    )


def test_names_of_an_enemy_are_only_ever_text(tracer, tmp_path):
    evil = f"{EVIL}\x1b[2J\n"
    calls = [{"ts": n, "tid": 7, "name": evil, "dur_ns": S} for n in range(9)]
    most = [{"ts": 1, "tid": 7, "name": "read", "dur_ns": (1 << 63) - 1}] * 2
    odd = [{"ts": t, "name": "memory_used", "value": v} for t, v in ((1, float("nan")), (0, 2.0))]
    folders = []
    for name in ("a", "b"):
        target = {"name": evil, "role": "target", "kind": "pid", "pid": 7, "command": [evil]}
        tables = {"syscalls": [*calls, *most], "samples": odd, "block": [], "phases": []}
        with make_trace(tmp_path / f"{name}.trace", tables, targets=[target]) as trace:
            folders.append(trace.folder)
    out = tracer("compare", *folders).out
    assert "\x1b" not in out and r"\x1b" in out
    rows = tracer("compare", *folders, "--json").json["rows"]
    assert any(evil in one["measure"] for one in rows)
    frame = pd.DataFrame(rows)
    assert "<img" not in ratios(frame).to_json()


def test_the_figure_has_a_dot_for_each_ratio_and_marks_1(compared):
    found = compared
    figure = ratios(found.rows)
    drawn = json.loads(figure.to_json())
    assert drawn["layout"]["xaxis"]["type"] == "log"
    assert any(shape["x0"] == 1 for shape in drawn["layout"]["shapes"])
    assert sum(len(trace.x) for trace in figure.data) == (found.rows["ratio"] > 0).sum()
    assert not ratios(found.rows.iloc[:0]).data
