"""The page of a trace: what is in it, what a hostile trace does not do to it, how it is written."""

import json
import os
import re
import resource
import stat

import pandas as pd
import pytest

from tests.support import drawn_pages
from tests.support.page_events import DEV, ONE, looped
from tests.support.page_policy import check_policy
from tests.support.recordings import EVIL
from tests.support.traces import make_trace
from tracer.analysis.findings.finding import Finding
from tracer.analysis.page.paper_table import PaperTable
from tracer.analysis.page.summary import summary
from tracer.analysis.page.tables import MOST_ROWS, page_table, page_tables
from tracer.analysis.page.trace import draw_lane, trace_page
from tracer.analysis.report.tables import all_tables
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

MS = 1_000_000


@pytest.fixture(scope="module")
def little(tmp_path_factory):
    """A few calls: the folder of a trace whose page has one figure and takes little time."""
    rows = [
        {"ts": n * MS, "pid": 7, "tid": 7, "nr": 0, "name": "read", "dur_ns": MS, "ret": 1}
        for n in range(23)
    ]
    with make_trace(tmp_path_factory.mktemp("little") / "run.trace", {"syscalls": rows}) as made:
        return made.folder


@pytest.fixture(scope="module")
def trace(little):
    """The same trace, opened."""
    with Trace(little) as opened:
        yield opened


@pytest.fixture(scope="module")
def html():
    """The page of a minute of training."""
    return drawn_pages.training().html


def without_plotly(html):
    return html[: html.index("<script>/**")]


def test_the_page_says_what_was_recorded(html):
    said = " ".join(re.sub("<[^>]*>", " ", without_plotly(html)).split())
    for fact in (
        "run.trace", "Recorded 60.0 s 2026-11-21", "Lost 1,200 in 1 gap", "0.80 s CPU",
        "target pid job: python train.py", "machine example, Some CPU, x86_64, 2 CPUs, 24.0 GiB",
        "kernel 6.18.0", "dirty_background_ratio 10", "vda (254:0, 64 GB, none)", "a note.",
        "Events were lost",
    ):  # fmt: skip
        assert fact in said, fact


def test_every_lane_is_drawn_and_every_table_is_there(html):
    figures = re.findall(r'<script type="application/json">(.*?)</script>', html, re.S)
    assert len(figures) == len(drawn_pages.training().timeline.lanes) > 15
    for figure in figures:
        told = json.loads(figure)
        assert told["layout"]["xaxis"]["range"] == [0, 60.0]
        (shaded,) = [one for one in told["layout"]["shapes"] if one.get("name") == "lost"]
        assert (shaded["x0"], shaded["x1"]) == (25.0, pytest.approx(27.05))
    for name in drawn_pages.training().tables:
        assert f'id="table-{name}"' in html


def test_the_page_needs_and_allows_nothing_else(html):
    check_policy(html)


def test_findings_come_first_and_lossy_ones_are_marked(trace):
    number = {"value": 0.4, "unit": "%", "weight": 0.1, "query": "SELECT '<b>'"}
    number["certainty"] = "at most"
    told = [
        Finding("stalls", "Write-back stalls cost at most 0.4 %.", **number, lossy=False),
        Finding("faults", f"71 % of faults are {EVIL}", **number, lossy=True),
    ]
    made = without_plotly(trace_page(trace, {}, [], told))
    assert made.index("Write-back stalls cost") < made.index("71 % of faults")
    assert made.index("71 % of faults") < made.index("<h2>Timeline</h2>")
    assert made.count("events were lost during it") == 1
    assert "<b>" not in made and "<img" not in made
    many = trace_page(trace, {}, [], told * 60)
    assert "92 more, with less weight" in many and "20 more: tracer report --json" in many
    assert "nothing in this trace stands out" in trace_page(trace, {}, [], [])
    assert "Findings" not in without_plotly(trace_page(trace, {}, []))


def test_queries_are_whole_or_left_out_with_a_note(trace):
    number = {"value": 0.4, "unit": "%", "weight": 0.1, "certainty": "exact", "lossy": False}

    def page_with(columns):
        query = f"SELECT {', '.join(f'{n} AS c{n}' for n in range(columns))}"
        return query, trace_page(trace, {}, [], [Finding("stalls", "Much.", **number, query=query)])

    query, page = page_with(5000)
    assert f"<pre>{query}</pre>" in page and "too long" not in page
    query, page = page_with(50_000)
    assert "query of this number" not in page and "SELECT 0 AS" not in page
    assert f"too long for this page ({len(query):,} characters): see tracer report --json" in page


def test_the_papers_tables_and_figures_have_their_place(trace):
    import plotly.graph_objects as go

    frame = pd.DataFrame(
        {"reason": ["periodic", EVIL], "ratio": [0.25, None], "ratio_low": [0.2, None],
         "ratio_high": [0.3, None]}
    )  # fmt: skip
    papers = [
        PaperTable("Table 9", "of this", frame, [go.Figure(), go.Figure()], True, ""),
        PaperTable(EVIL, EVIL, frame, [], False, f"{EVIL} lost"),
    ]
    made = trace_page(trace, {}, [], papers=papers)
    part = made[made.index('id="papers"') : made.index('id="how"')]
    assert "Table 9" in part and ">25 [20, 30]<" in part and part.count('class="figure"') == 2
    assert part.count("<table") == 1 and part.count("Losses: ") == 1
    assert "<img" not in part


def test_a_table_has_units_and_numbers_to_sort_by():
    frame = pd.DataFrame(
        {"name": ["b", "a"], "total_s": [1234.5, None], "bytes": [1 << 20, 3 << 20],
         "pid": [12345, 2], "ratio": [0.5, 0.25], "p99_us": [1.5, 2.0]}
    )  # fmt: skip
    made = page_table("x", frame, "X")
    assert [(one.label, one.unit, one.number) for one in made.columns] == [
        ("name", "", False), ("total", "s", True), ("data", "MiB", True), ("pid", "", True),
        ("ratio", "%", True), ("p99", "µs", True),
    ]  # fmt: skip
    first, second = ([cell.text for cell in row] for row in made.rows)
    assert first == ["b", "1,234", "1", "12345", "50", "1.5"]
    assert second[1] == "-" and made.rows[1][1].value is None
    assert [row[2].value for row in made.rows] == [1, 3]


def test_samples_are_in_units_that_people_read():
    frame = pd.DataFrame(
        {"target": [None, None], "name": ["rss", "cpu_frequency"], "instance": [None, None],
         "unit": ["bytes", "Hz"], "samples": [1, 1], "min": [float(1 << 20), 1e9],
         "mean": [float(1 << 20), 1e9], "max": [float(1 << 20), 1e9],
         "last": [float(1 << 20), 1e9], "growth": [None, None]}
    )  # fmt: skip
    (made,) = page_tables({"samples": frame})
    assert [[row[3].text, row[5].text, row[9].text] for row in made.rows] == [
        ["MiB", "1", "-"], ["MHz", "1,000", "-"],
    ]  # fmt: skip
    assert "growth" in made.meaning


def test_long_tables_and_long_names_are_cut_and_that_is_said():
    frame = pd.DataFrame({"name": ["x" * 5000] * (MOST_ROWS + 7), "n": range(MOST_ROWS + 7)})
    made = page_table("x", frame, "X")
    assert (len(made.rows), made.more) == (MOST_ROWS, 7)
    assert len(made.rows[0][0].text) == 201


def test_a_value_that_is_not_a_number_is_a_dash():
    frame = pd.DataFrame({"a": [float("nan"), float("inf"), -float("inf"), 1e300]})
    made = page_table("x", frame, "X")
    assert [row[0].text for row in made.rows[:3]] == ["-", "-", "-"]
    assert made.rows[3][0].value == 1e300


def test_an_incomplete_recording_says_so(tmp_path):
    with make_trace(tmp_path / "t", {}, complete=False, ended_by="killed") as made:
        told = summary(made.manifest, [])
    (tile,) = [tile for tile in told.tiles if tile.name == "Complete"]
    assert (tile.value, tile.bad, tile.about) == ("no", True, "the recorder was killed")
    assert told.warnings[0].startswith("The recording did not end")


def test_a_long_command_is_cut_with_an_ellipsis(tmp_path):
    job = {"name": "job", "role": "target", "kind": "pid", "pid": 7, "command": ["x" * 400]}
    with make_trace(tmp_path / "t", {}, targets=[job]) as trace:
        [(command)] = re.findall(r"pid job: (.*?)</dd>", trace_page(trace, {}, []))
    assert set(command[:-1]) == {"x"} and command[-1] == "…"


def test_files_whose_names_were_not_found_are_noted(tmp_path):
    made = looped(pages=8, epochs=1)
    made.read(0, 8, 13)
    tables = {**made.tables, "files": [{"dev": DEV, "ino": 12, "path": "/named"}]}
    cause = "7 files without a name: the search took too long"
    gap = {"stream": "files", "cpu": -1, "count": 0, "cause": cause}
    for loss, said in (([], False), ([gap], True)):
        folder = tmp_path / f"{len(loss)}.trace"
        with make_trace(folder, {**tables, "loss": loss}, clock=made.clock, targets=ONE) as trace:
            page = trace_page(trace, {}, [])
        note = f"Names are missing: {cause} (1 of the 2 files that the targets read have no name)"
        assert (note in page) is said


def test_losses_of_unknown_size_are_not_0(tmp_path):
    counts = {"events": 0, "windows": 3, "unknown": 3}
    with make_trace(tmp_path / "t", {}, loss=counts) as made:
        told = summary(made.manifest, [])
    (tile,) = [tile for tile in told.tiles if tile.name == "Lost"]
    assert (tile.value, tile.bad) == ("unknown", True)


def test_a_recording_without_kernel_events_has_no_number_of_lost_ones(tracer, tmp_path):
    how = {"backend": "none", "backend_why": "asked for"}
    (tmp_path / "runs").mkdir()
    for name in "ab":
        with make_trace(tmp_path / "runs" / f"{name}.trace", {"processes": []}, **how) as made:
            told = summary(made.manifest, [])
        (tile,) = [tile for tile in told.tiles if tile.name == "Lost"]
        assert (tile.value, tile.about) == ("-", "no kernel events were recorded")
    why = "no kernel events were recorded (asked for)"
    for of in ("runs", "runs/a.trace"):
        shown = tracer("report", of).out
        assert f"Note: {why}." in shown
        assert "events lost" not in shown
    assert tracer("report", "runs/a.trace", "--json").json["without_events"] == why
    assert "lost        no kernel events were recorded" in tracer("info", "runs/a.trace").out


def test_a_trace_without_any_event_has_a_page(tmp_path):
    from tracer.probes.catalogue import TABLES

    with make_trace(tmp_path / "t", {name: [] for name in TABLES}) as made:
        html = trace_page(made, all_tables(made), [])
    assert "without any event" in html and "plotly.js v" not in html


def test_names_of_an_enemy_are_only_ever_text():
    html, lanes = drawn_pages.hostile().html, drawn_pages.hostile().timeline
    body = without_plotly(html)
    assert len(html.encode("utf-8", "strict")) < 20 << 20
    assert "<img" not in body and "alert(1)</script" not in body
    assert body.count("<script") == body.count('<script type="application/json">')
    for character in "\x1b\u202e":
        assert character not in body
    for lane in lanes.lanes:
        told = draw_lane(lane, lanes.axis.length_s, lanes.losses).to_json()
        assert "<script" not in told and "\\u202e" not in told and "\\u001b" not in told


def test_the_verb_writes_a_page_whole_or_not_at_all(tracer, little, tmp_path):
    ran = tracer("report", little, "--html", "run.html")
    page = tmp_path / "run.html"
    assert ran.out == "" and "run.html: " in ran.err and "MiB" in ran.err
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    ran = tracer("report", little, "--html", "run.html", status=2)
    assert "run.html exists" in ran.err and "--force" in ran.err
    page.write_text("old")
    ran = tracer("report", little, "--html", "run.html", "--force", "--json")
    assert json.loads(ran.out)["duration_s"] == 1.0
    assert page.stat().st_size > 1 << 20
    for name in ("no/run.html", "."):
        ran = tracer("report", little, "--html", name, "--force", status=2)
        assert ran.err.count("\n") == 1
    ran = tracer("report", little, "--html", "-", "--json", status=2)
    assert "stdout" in ran.err
    assert sorted(os.listdir(tmp_path)) == ["run.html"]


def test_the_page_goes_to_stdout_where_that_is_asked_for(tracer, little):
    assert tracer("report", little, "--html", "-").out.startswith("<!DOCTYPE html>")


def little_room():
    """Lets this process write files of at most 1 MiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def test_a_disk_that_holds_no_more_has_nothing_of_it(tracer, little, tmp_path):
    ran = tracer("report", little, "--html", "x.html", status=1, before=little_room)
    assert "cannot write x.html: " in ran.err and ran.err.count("\n") == 1
    assert os.listdir(tmp_path) == []
