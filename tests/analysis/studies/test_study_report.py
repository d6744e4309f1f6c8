"""The report of a study: what it says, and what hostile names in it do not do."""

import json
import os
import re
import shutil

import pandas as pd
import pytest

from tests.support.studies import EVIL, make_study
from tracer.analysis.page.cells import cell, rows
from tracer.analysis.studies.extracts import MAKERS, VERSION, read_extracts
from tracer.analysis.studies.papers.made import made
from tracer.analysis.studies.papers.parts import FACTS, RUNS, parts
from tracer.analysis.studies.report.contents import contents
from tracer.analysis.studies.report.markdown import markdown
from tracer.analysis.studies.report.page import page
from tracer.analysis.studies.runs import read_runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small study with names of an enemy."""
    return make_study(tmp_path_factory.mktemp("study") / "s", model=EVIL, reported=True)


@pytest.fixture(scope="module")
def found(folder):
    """Returns the JSON of a study's report."""
    return contents(folder)


def test_terminal_and_json_name_the_runs_whose_traces_lost_events(folder, tracer, tmp_path):
    text = " ".join(tracer("study", "report", folder).out.split())
    assert "Losses: events are missing in 4-1 (1,234 events lost)" in text
    lost = {
        "id": "4-1", "complete": True, "lost_events": 1234, "loss_windows": 2, "loss_unknown": 0,
    }  # fmt: skip
    assert tracer("study", "report", folder, "--json").json["lost"] == [lost]
    # The kept extracts tell it, too, if the traces are gone.
    kept = shutil.copytree(folder, tmp_path / "kept")
    for trace in kept.glob("runs/*/run.trace"):
        shutil.rmtree(trace)
    assert tracer("study", "report", kept, "--json").json["lost"] == [lost]
    (kept / "runs/1-0/extracts.json").unlink()
    nothing = {**dict.fromkeys(lost), "id": "1-0"}
    assert tracer("study", "report", kept, "--json").json["lost"] == [nothing, lost]
    text = " ".join(tracer("study", "report", kept).out.split())
    assert "(1,234 events lost); not known, for want of a trace, in 1-0" in text


def section(found, title):
    return next(one for one in found.sections if one.title.startswith(title))


def test_every_table_and_figure_of_the_papers_has_its_section(found):
    assert [one.title for one in found.sections] == [part.title for part in parts(None)]
    for one in found.sections:
        assert bool(one.why) != bool(one.rows or one.figures), one.title
    missing = {one.title: one.why for one in found.sections if one.why}
    assert missing.keys() == {
        "Figure 6 by checkpoint habit",
        "Figures 1b and 3b: energy",
        "Figure 2a: epoch time by number of workers",
        "Figure 3: epoch time by storage medium",
        "Figure 4: epoch time by batch size",
        "Figures 8 and 10: power modes, measured and predicted",
        "Serving: latency",
        "Serving: page faults, CPU time and write-back",
        "Serving: containers against the host",
        "Table 5 with limited memory and swap",
        "Tables 9 and 10 with a lower background threshold",
        "Section 5.1.1: fetch stall with limited memory",
        "Figures 2c, 3c, 5b, 9b and 11: energy of an epoch",
        "Figure 6: frequency scaling (DVFS)",
        "Figure 7: power of the idle machine by state",
        "Figure 9a: parts of an epoch by power mode",
        "Figures 13 to 16: modes that differ in one setting",
    }
    assert "there is no RAPL" in missing["Figures 2c, 3c, 5b, 9b and 11: energy of an epoch"]
    assert "there is no RAPL" in missing["Figures 1b and 3b: energy"]


def test_the_command_of_the_study_is_told(tmp_path, found):
    assert dict(found.machine)["command"] == "tracer study run small --scale 0.5"
    told = {"time_scale": 0.05, "repeats": 3, "seed": 12345678, "engine": "podman"}
    folder = make_study(tmp_path / "s", name="a b;c", places=("host",), reported=True, **told)
    assert dict(contents(folder, drawn=False).machine)["command"] == (
        "tracer study run 'a b;c' --scale 0.5 --time-scale 0.05 --repeats 3 --seed 12345678"
        " --engine podman"
    )


def test_the_machine_is_that_of_the_runs(found):
    machine = dict(found.machine)
    assert machine["CPUs"] == "2" and machine["memory"] == "1.0 GiB"
    assert machine["disk of the runs"] == "loop0 (2 GB, scheduler none)"
    assert machine["CPU"] == "not recorded"
    assert machine["Python"] == "3.11.7" and "absent" not in machine
    assert machine["repeats"] == "2"
    # 4 runs of 1 s and 2 of 4 s, in 50 s on 2 CPUs
    others = "2.0% of the CPUs on average, 4.0% at most (6 runs)"
    assert machine["use by other processes"] == others
    assert "taken by the host (steal)" not in machine  # these runs do not tell


def test_the_use_by_others_is_a_share_of_the_time_in_which_it_was_counted(tmp_path):
    folder = make_study(tmp_path / "s", places=("host",), reported=True)
    for path, taken in zip(sorted(folder.glob("runs/host-*/run.json")), (0.0, 4.0), strict=True):
        more = {"others_over_s": 10.0, "steal_s": taken}
        path.write_text(json.dumps(json.loads(path.read_text()) | more))
    told = dict(contents(folder, drawn=False).machine)
    # 1 s, in 10 s on 2 CPUs
    others = "5.0% of the CPUs on average, 5.0% at most (2 runs)"
    assert told["use by other processes"] == others
    host = "10.0% of the CPUs on average, 20.0% at most (2 runs)"
    assert told["taken by the host (steal)"] == host


@pytest.mark.parametrize(
    ("ended_by", "why"),
    [("space", "the disk had little space left"), ("size", "the size limit was reached")],
)
def test_a_run_whose_recording_ended_early_is_left_out_with_the_reason(tmp_path, ended_by, why):
    folder = make_study(tmp_path / "s", places=("host",), reported=True)
    manifest = folder / "runs/host-0/run.trace/manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"ended_by": ended_by}))
    told = contents(folder, drawn=False)
    assert told.said == "1 runs, 2 failed"
    assert ("host-0", "failed", f"the recording ended early: {why}") in told.left_out


def test_a_copy_of_a_run_is_left_out_and_named(tmp_path):
    folder = make_study(tmp_path / "s", places=("host",), reported=True, runs=[{}] * 4)
    shutil.copytree(folder / "runs/host-0", folder / "runs/host-0 (copy)")
    told = contents(folder, drawn=False)
    assert told.said == "2 runs, 1 failed, 1 copied, 1 not begun"
    why = "it has the factors and the repeat of host-0"
    assert ("host-0 (copy)", "a copy", why) in told.left_out


def test_losses_are_said_where_they_touch_a_result(found):
    said = "events are missing in 4-1 (1,234 events lost)"
    assert found.lost == said
    assert section(found, "Table 6").lost == said
    assert section(found, "Table 5").lost == ""  # it is of other runs
    for kind in (page, markdown):
        assert kind(found).count("1,234 events lost") > 4


def test_failed_runs_are_listed_with_their_reason(found):
    assert found.said == "6 runs, 1 failed"
    ((id, state, reason),) = found.left_out
    assert (id, state) == ("failed", "failed") and reason.startswith("no memory")
    for kind in (page, markdown):
        assert "no memory" in kind(found)


def test_an_unknown_value_is_a_dash_and_never_0(found):
    cycles = next(row for row in section(found, "Table 5").rows if row[0] == "cycles")
    assert cycles[2:5] == ["-", "-", "-"]
    faults = next(row for row in section(found, "Table 5").rows if row[0] == "page-faults")
    assert faults[2:5] == ["200 [200, 200]", "3 [3, 3]", "100 [100, 100]"]


def test_names_of_an_enemy_are_only_ever_text(found):
    html = page(found)
    body = html[: html.index("<script>/**")]  # before plotly's own code
    assert "<img" not in body and "</script><img" not in html
    assert body.count("<a ") == body.count('<a href="#')
    text = markdown(found)
    assert "<img" not in text and "http://" not in text
    assert not re.search(r"(?<!\\)\]\(", text)
    for line in text.splitlines():
        if line.startswith("|"):
            assert not re.search(r"(?<!\\)[`*]", line), line
    table = text[text.index("## Table 8") : text.index("## Tables 9")]
    bars = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines() if "|" in line}
    assert len(bars) == 1


def test_the_page_holds_all_that_it_needs_once(found):
    html = page(found)
    assert html.count("plotly.js (cartesian") == 1
    assert 'http-equiv="Content-Security-Policy"' in html
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(?!data:|#)", html)
    told = re.findall(r'<script type="application/json">(.*?)</script>', html, re.S)
    assert len(told) == sum(len(one.figures) for one in found.sections)
    for figure in told:
        assert json.loads(figure)["layout"]["height"] > 0


def test_a_study_without_a_run_that_was_done_has_a_report(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "study.json").write_text('{"name": "none", "paper": "001"}')
    empty = contents(tmp_path)
    assert all(one.why for one in empty.sections)
    assert "Not measured" in markdown(empty)
    assert "plotly.js v" not in page(empty)


@pytest.fixture(scope="module")
def frames(folder):
    """The frames that the parts of the papers are made of, by name."""
    _, runs, _ = read_runs(folder)
    extracts = read_extracts(folder, runs)
    keys = runs[["id", "where", "mode", "model", "repeat"]]
    energy = keys.assign(source="total", part=False, energy_j=9.0, duration_s=3.0, baseload_w=1.0)
    return {RUNS: runs, FACTS: extracts.facts, "energy": energy, **extracts.frames}


FEW = {
    "four containers alone": lambda frame: frame[frame["id"].str.startswith("4-")],
    "one run": lambda frame: frame[frame["id"] == frame["id"].iloc[0]],
    "one row": lambda frame: frame.iloc[:1],
    "nothing": lambda frame: frame.iloc[:0],
    "nothing known": lambda frame: frame.assign(
        **dict.fromkeys(frame.select_dtypes("number").columns)
    ),
}


@pytest.mark.parametrize("few", FEW.values(), ids=FEW)
@pytest.mark.parametrize("part", parts(None), ids=lambda part: part.title)
def test_every_part_is_made_of_however_little_there_is(frames, part, few):
    found = made(part, few(frames[part.needs]))
    assert bool(found.why) == found.table.empty


def test_extracts_outlive_their_traces_and_damaged_ones_are_made_anew(folder, frames, tmp_path):
    folder = shutil.copytree(folder, tmp_path / "s")
    runs = read_runs(folder)[1]
    first = read_extracts(folder, runs)
    kept = folder / "runs/1-0/extracts.json"
    for damage in ("{", "[]", '{"version": 1, "tables": {}}'):
        kept.write_text(damage)
        again = read_extracts(folder, runs)
        pd.testing.assert_frame_equal(again.frames["counters"], first.frames["counters"])
    for trace in folder.glob("runs/*/run.trace"):
        shutil.rmtree(trace)
    assert read_extracts(folder, runs).frames.keys() == first.frames.keys()
    kept.unlink()
    left = read_extracts(folder, runs)
    assert set(left.frames["counters"]["id"]) == set(runs["id"]) - {"1-0"}


def test_extracts_of_the_version_before_count_without_their_traces(folder, frames, tmp_path):
    folder = shutil.copytree(folder, tmp_path / "s")
    runs = read_runs(folder)[1]
    kept = folder / "runs/1-0/extracts.json"
    for version, known in ((VERSION - 1, True), (1, False), (VERSION + 1, False)):
        read_extracts(folder, runs)  # made again, if its trace is there
        kept.write_text(json.dumps(json.loads(kept.read_text()) | {"version": version}))
        shutil.rmtree(folder / "runs/1-0/run.trace", ignore_errors=True)
        assert ("1-0" in set(read_extracts(folder, runs).frames["counters"]["id"])) == known


def test_an_extract_says_why_it_is_not_there(folder):
    found = read_extracts(folder, read_runs(folder)[1])
    assert found.frames.keys() | found.why.keys() == MAKERS.keys()
    assert found.why == {"energy": found.why["energy"]}
    assert found.facts.set_index("id")["lost_events"].to_dict()["4-1"] == 1234


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (float("nan"), "-"), (0, "0"), (0.0, "0"), (1234567, "1,234,567"),
        (0.123456, "0.1235"), (12345.6, "12,346"), (True, "yes"), ("a\x1bb", r"a\x1bb"),
        (-2.5, "-2.5"), (3e20, "3.000e+20"),
    ],
)  # fmt: skip
def test_values_are_short(value, text):
    assert cell(value) == text


def test_an_interval_stands_behind_its_value():
    columns = ["model", "s", "s_low", "s_high"]
    lines = [
        dict(zip(columns, values, strict=True))
        for values in (("a", 1.0, 0.5, 1.5), ("b", 2.0, None, None), ("c", None, None, None))
    ]
    assert rows(lines, columns) == (
        ["model", "s"],
        [["a", "1 [0.5, 1.5]"], ["b", "2"], ["c", "-"]],
    )


def test_the_verb_writes_by_the_file_s_name(tracer, folder, tmp_path):
    ran = tracer("study", "report", folder, "-o", "x.html")
    assert ran.out == "" and "6 runs, 1 failed" in ran.err
    html = (tmp_path / "x.html").read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert html.count('<script type="application/json">') > 5  # its figures
    # Figures in files of their own, and new reports, are test_study_pictures.py's.
    undrawn = {"env": {**os.environ, "PATH": ""}}
    (tmp_path / "x.md").write_text("old")
    ran = tracer("study", "report", folder, "-o", "x.md", status=2, **undrawn)
    assert "x.md exists" in ran.err and "--force" in ran.err
    assert (tmp_path / "x.md").read_text() == "old"
    tracer("study", "report", folder, "-o", "x.md", "--force", **undrawn)
    assert (tmp_path / "x.md").read_text().startswith("# small")
    ran = tracer("study", "report", folder, "-o", "x.pdf", status=2)
    assert ".html or .md" in ran.err
    ran = tracer("study", "report", folder, "-o", "no/x.md", status=2)
    assert "there is no folder" in ran.err and ran.err.count("\n") == 1
    ran = tracer("study", "report", tmp_path, "-o", "y.md", status=2)
    assert "is not the folder of a study" in ran.err
    assert not (tmp_path / "y.md").exists()
