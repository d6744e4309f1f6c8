"""The papers' tables and figures of any traces: one, several places, a study's runs."""

from pathlib import Path

import pytest

from tests.support.studies import make_study
from tests.support.traces import make_trace
from tracer.analysis.studies.papers.of_traces import sections, sections_of
from tracer.analysis.studies.papers.parts import parts
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

S = 1_000_000_000
CLOCK = {"name": "mono", "start_ns": 0, "end_ns": 60 * S}
LENET = Path(__file__).parents[3] / "fixtures/lenet.trace"


def by_title(found):
    return {one.title.partition(":")[0]: one for one in found}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study") / "s", reported=True)


def test_a_real_trace_has_the_tables_that_it_can_give():
    with Trace(LENET) as trace:
        found = sections(trace)
    titles = [one.title for one in found]
    assert [t for t in titles if t in {part.title for part in parts(None)}] == titles
    told = by_title(found)
    assert told.keys() >= {
        "Table 7", "Table 8", "Tables 9 and 10", "Figure 3", "Figure 4", "Figure 6",
        "Figures 1a and 3a", "Figure 7",
    }  # fmt: skip
    causes = told["Table 8"]
    assert "Here: host" in causes.about and len(causes.figures) == 1
    assert causes.frame["percent"].notna().all() and causes.frame["percent"].is_monotonic_decreasing
    assert set(told["Tables 9 and 10"].frame["model"]) == {"lenet"}  # not the paper's others
    settings = told["Table 7"].frame.set_index("setting")
    assert settings.loc["dirty_writeback_centisecs", "least"] == 500
    assert settings.loc["dirty_writeback_centisecs", "paper_value"] == 500
    for one in found:
        assert one.figures or len(one.frame), one.title
        assert one.lost == ""


def test_traces_of_several_places_stand_side_by_side(study):
    host, one = (study / f"runs/{name}-0/run.trace" for name in ("host", "1"))
    found = by_title(sections_of([host, one]))
    parts_of = found["Figures 1a and 3a"].frame
    whole = parts_of[parts_of["part"] == "end to end"].iloc[0]
    assert whole["increase_percent"] == pytest.approx(100) and whole["pairs"] == 1
    counts = found["Table 5"].frame.set_index("event")
    assert counts.loc["page-faults", "container_to_host"] == 2
    assert set(found["Tables 9 and 10"].frame["where"]) == {"host", "one container"}


def test_all_runs_of_a_study_give_what_its_report_gives(study):
    from tracer.analysis.studies.report.contents import contents

    reported = contents(study, drawn=False)
    found = sections_of(sorted(study.glob("runs/*/run.trace")))
    assert [one.title for one in found] == [
        one.title for one in reported.sections if not one.why
    ]  # fmt: skip
    lossy = {one.title: one.lost for one in found if one.lost}
    assert any("4-1 (1,234 events lost)" in lost for lost in lossy.values())


def test_traces_that_are_of_no_study_pair_by_their_order(tmp_path):
    def traced(name, kind, seconds):
        at = {"pid": 7, "tid": 7, "step": 0, "epoch": 0}
        step = {**at, "name": "step", "start": 0, "end": seconds * S}
        train = {**at, "name": "train", "start": 0, "end": seconds * S}
        target = {"name": "job", "role": "target", "kind": kind, "pid": 7}
        make_trace(
            tmp_path / name, {"phases": [train, step]}, targets=[target], clock=CLOCK
        ).close()
        return tmp_path / name

    folders = [
        traced("h1.trace", "pid", 10), traced("h2.trace", "pid", 20),
        traced("c1.trace", "container", 20), traced("c2.trace", "container", 60),
    ]  # fmt: skip
    found = by_title(sections_of(folders, "000"))["Figures 1a and 3a"].frame
    whole = found[found["part"] == "end to end"].iloc[0]
    assert whole["pairs"] == 2 and whole["increase_percent"] == 150  # 100 % and 200 %


def test_workers_are_told_by_the_command(tmp_path):
    def traced(workers, stall):
        at = {"pid": 7, "tid": 7}
        phases = [{**at, "name": "train", "start": 0, "end": 40 * S}]
        for epoch in (0, 1):
            of = {**at, "epoch": epoch, "start": 20 * S * epoch}
            end = of["start"] + 10 * S
            phases += [
                {**of, "name": "epoch", "end": end},
                {**of, "name": "step", "end": end, "step": epoch},
                {**of, "name": "fetch", "end": of["start"] + stall * S, "step": epoch},
            ]
        command = ["python", "train.py", "--workers", str(workers)]
        target = {"name": "j", "role": "target", "kind": "command", "pid": 7, "command": command}
        folder = tmp_path / f"{workers}.trace"
        make_trace(folder, {"phases": phases}, targets=[target], clock=CLOCK).close()
        return folder

    found = by_title(sections_of([traced(0, 8), traced(4, 2)], "002"))
    stalls = found["Figure 2a"].frame
    assert stalls["workers"].tolist() == [0, 4] and stalls["stall_s"].tolist() == [8, 2]
    assert len(found["Figure 2a"].figures) == 1


def test_energy_is_split_by_a_baseload(tmp_path):
    def powered(name, watts, targets):
        rows = [
            {"ts": t * S, "name": "gpu_power", "value": watts, "unit": "W", "instance": "0"}
            for t in range(11)
        ]
        return make_trace(tmp_path / name, {"samples": rows}, targets=targets)

    job = [{"name": "job", "role": "target", "kind": "pid", "pid": 7}]
    with powered("run.trace", 50.0, job) as trace, powered("idle.trace", 20.0, []) as idle:
        (row,) = by_title(sections(trace, "000", idle))["Figures 1b and 3b"].frame.to_dict(
            "records"
        )
    assert (row["energy_j"], row["baseload_j"], row["increment_j"]) == (500, 200, 300)


def test_energy_of_traces_is_that_of_the_steps_of_their_training(tmp_path):
    at = {"pid": 7, "tid": 7}
    phases = [{**at, "name": "train", "start": 0, "end": 10 * S}]
    for step in range(5):
        of = {**at, "start": 2 * S * step, "end": 2 * S * (step + 1)}
        phases.append({**of, "name": "step", "epoch": 0, "step": step})
    samples = [
        {"ts": t * S, "name": "gpu_power", "value": 50.0, "unit": "W", "instance": "0"}
        for t in range(11)
    ]
    job = [{"name": "job", "role": "target", "kind": "pid", "pid": 7}]
    tables = {"samples": samples, "phases": phases}
    with make_trace(tmp_path / "run.trace", tables, targets=job, clock=CLOCK) as trace:
        frame = by_title(sections(trace, "000"))["Figures 1b and 3b"].frame
    (row,) = frame.to_dict("records")
    assert (row["per"], row["energy_j"]) == ("minibatch", 100)


def test_an_empty_trace_has_no_sections(tmp_path):
    with make_trace(tmp_path / "e.trace", {}) as trace:
        assert sections(trace) == []
    assert sections([]) == []
