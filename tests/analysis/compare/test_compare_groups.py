"""Groups of traces: by place or name, their pairs, and traces that are the same."""

import pytest

from tests.support.compared import make_run as run
from tests.support.compared import row
from tests.support.studies import make_study
from tests.support.traces import make_trace
from tracer.analysis.compare.comparison import compare
from tracer.analysis.compare.groups import Group, different_work, pairs, told
from tracer.analysis.compare.verdicts import UNTOLD
from tracer.analysis.studies.identity import Identity, identity
from tracer.probes.errors import UsageError
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow


def ran(id, where="host", repeat=None, model="lenet", of_study=False, **more):
    factors = {"model": model, "where": where, "mode": "train", "repeat": repeat, **more}
    return Identity(id, factors, of_study=of_study, work=model)


def test_groups_are_told_by_place_then_by_name():
    by_place = told([ran("a", "4"), ran("b"), ran("c", "1"), ran("d", "16"), ran("e")])
    assert [(g.name, g.traces) for g in by_place.groups] == [
        ("host", (1, 4)), ("one container", (2,)), ("4 containers", (0,)), ("16 containers", (3,)),
    ]  # fmt: skip
    by_name = told([ran("plain-1"), ran("slow-1"), ran("plain-2"), ran("slow_2")])
    assert [(g.name, g.traces) for g in by_name.groups] == [("plain", (0, 2)), ("slow", (1, 3))]
    alone = told([ran("run1"), ran("run2")])
    assert [g.name for g in alone.groups] == ["run1", "run2"]
    assert "one trace each" in alone.how
    same = told([ran("run"), ran("run")])
    assert len({g.name for g in same.groups}) == 2


def of_two(identities, **options):
    half = len(identities) // 2
    base, other = Group("a", tuple(range(half))), Group("b", tuple(range(half, len(identities))))
    return pairs(base, other, identities, **options)


def test_runs_pair_by_seed_or_by_what_their_study_says():
    seeds = [ran("", "host", "1"), ran("", "host", "2"), ran("", "1", "2"), ran("", "1", "1")]
    assert of_two(seeds) == [(0, 3), (1, 2)]
    studied = [
        ran("", where, repeat, model, of_study=True)
        for where in ("host", "1") for model in ("lenet", "lstm") for repeat in (0, 1)
    ]  # fmt: skip
    assert of_two(studied) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    by_factor = [ran("", repeat=n, of_study=True, workers=w) for w in (1, 4) for n in (0, 1)]
    assert of_two(by_factor) == [(0, 2), (1, 3)]


def test_runs_that_nothing_tells_apart_do_not_pair_unless_asked_to():
    unknown = [ran(str(n)) for n in range(4)]
    assert of_two(unknown) is None
    assert of_two(unknown, by_order=True) == [(0, 2), (1, 3)]
    same_seed = [ran(str(n), repeat="0") for n in range(4)]
    assert of_two(same_seed) is None
    other_work = [ran("", repeat=n, model=m, of_study=True) for m in "ab" for n in (0, 1)]
    assert of_two(other_work) == [(0, 2), (1, 3)]  # the model is what tells the groups apart


def test_a_study_s_runs_group_by_place_and_pair(tmp_path):
    folder = make_study(tmp_path / "s")
    found = compare(sorted(folder.glob("runs/*/run.trace")))
    assert [group.name for group in found.grouping.groups] == [
        "host", "one container", "4 containers",
    ]  # fmt: skip
    step = row(found, "minibatch", "train: end to end", "one container")
    assert step["ratio"] == pytest.approx(2) and step["pairs"] == 2
    assert (step["ratio_low"], step["verdict"]) == (pytest.approx(2), UNTOLD)  # of two pairs
    assert not step["lossy"]
    assert row(found, "minibatch", "train: end to end", "4 containers")["lossy"]
    assert any("events are missing in 4 containers" in note for note in found.notes)
    assert any("2 pairs of runs of host and one container" in note for note in found.notes)


def test_a_trace_that_is_named_twice_counts_once_and_is_said(tmp_path):
    a, b = run(tmp_path / "a.trace", 1), run(tmp_path / "b.trace", 2)
    found = compare([a, b, tmp_path / "." / "a.trace"])
    assert len(found.runs) == 2 and any("named twice" in note for note in found.notes)
    with pytest.raises(UsageError, match="in the groups x and y"):
        compare([], {"x": [a], "y": [a, b]})


def test_copies_of_one_recording_are_said(tmp_path):
    recorder = {"pid": 5, "boot_id": "b", "start_time": 1}
    a = run(tmp_path / "a.trace", 1, recorder=recorder)
    b = run(tmp_path / "b.trace", 1, recorder=recorder)
    assert any("are the same recording" in note for note in compare([a, b]).notes)


def test_recordings_of_other_lengths_are_said(tmp_path):
    def recorded(name, seconds):
        clock = {"name": "mono", "start_ns": 0, "end_ns": seconds * 10**9}
        return run(tmp_path / name, 1, clock=clock)

    long = compare([recorded("a.trace", 100), recorded("b.trace", 250)])
    (said,) = [note for note in long.notes if "times as long" in note]
    assert said.startswith("the recordings of b last 2.5 times as long as those of a;")
    longer = compare([recorded("e.trace", 100), recorded("f.trace", 123_456)])
    assert any("f last 1,235 times as long" in note for note in longer.notes)
    alike = compare([recorded("c.trace", 100), recorded("d.trace", 110)])
    assert not any("times as long" in note for note in alike.notes)


def test_groups_that_do_other_work_are_said(tmp_path):
    def job(name, *command):
        target = {"name": "job", "role": "target", "kind": "command", "pid": 7}
        return run(tmp_path / name, 1, targets=[{**target, "command": ["python", *command]}])

    other = compare([job("a.trace", "train.py"), job("b.trace", "infer.py")])
    assert any("do not do the same work" in note for note in other.notes)
    long = compare([job("e.trace", "train.py", "x" * 80), job("f.trace", "infer.py")])
    assert any("x ...; " in note for note in long.notes)
    begin = ["train.py", "--data", "/" + "x" * 80]
    late = compare(
        [job("g.trace", *begin, "--lr", "0.1"), job("h.trace", *begin, "--lr", "0.2", "y" * 80)]
    )
    (said,) = [note for note in late.notes if "same work" in note]
    assert "(g: ... --lr 0.1; h: ... --lr 0.2 yyy" in said and "y ...)" in said
    same = compare(
        [job("c.trace", "train.py", "--seed", "1"), job("d.trace", "train.py", "--seed=2")]
    )
    assert not any("same work" in note for note in same.notes)


def test_work_that_only_one_group_does_is_named_first():
    groups = [Group("x", (0, 1, 2, 3)), Group("y", (4, 5, 6, 7))]
    (said,) = different_work(groups, [ran("", model=model) for model in "abcdabce"])
    assert said.endswith("(x: d, a, b and 1 more; y: e, a, b and 1 more)")


def test_a_group_with_several_kinds_of_work_is_said(tmp_path):
    def job(name, script):
        target = {"name": "job", "role": "target", "kind": "command", "pid": 7}
        return run(tmp_path / name, 1, targets=[{**target, "command": ["python", script]}])

    a, b = ([job(f"{script}{n}.trace", f"{script}.py") for n in (1, 2)] for script in "ab")
    kinds = "holds several kinds of work"
    assert not any(kinds in note for note in compare([], {"x": a, "y": b}).notes)
    mixed = compare([], {"x": [a[0], b[0]], "y": [a[1]]}).notes
    assert [note.split()[0] for note in mixed if kinds in note] == ["x"]


def test_a_trace_s_identity_is_told_by_its_targets(tmp_path):
    command = ["python", "-m", "tracer.workloads", "train", "lstm", "--seed", "3", "--workers", "2"]
    target = {"name": "c", "role": "target", "kind": "container", "pid": 7, "command": command}
    daemon = {"name": "dockerd", "role": "daemon", "kind": "daemon", "pid": 9}
    folder = run(tmp_path / "c.trace", 1, targets=[target, {**target, "name": "d"}, daemon])
    with make_trace(tmp_path / "host.trace", {}) as host:
        assert (identity(host).id, identity(host).where) == ("host", "host")

    with Trace(folder) as trace:
        found = identity(trace)
    assert found.factors == {
        "model": "lstm", "where": "2", "mode": "train", "repeat": "3", "workers": 2,
    }  # fmt: skip
