"""Verbs over many traces: folders, packs and URLs, here and on workers; mistakes in one line."""

import json
import os
import re
import shutil
from functools import partial

import pytest

from tests.conftest import ROOT, run_tracer
from tests.support.studies import make_study
from tests.support.traces import make_trace
from tracer.store.packing import pack

pytestmark = pytest.mark.slow

FIXTURE = ROOT / "fixtures" / "lenet.trace"
PLACES = ("host", "4")
RUNS = ("4-0", "4-1", "host-0", "host-1")
"""The places of the runs of a study, and the runs."""
HOSTILE = "\x1b[31m[red]<script>alert(1)</script>"


def one_line(text):
    assert text.count("\n") == 1, text
    assert text.startswith("tracer: ")
    return text


def calls(*names):
    return [
        {"ts": ts, "pid": 7, "tid": 7, "nr": 0, "name": name, "dur_ns": 1000, "ret": 1}
        for ts, name in enumerate(names)
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder in which `tracer` runs. Tests add traces, and change none."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture
def tracer(place):
    """Runs `tracer` with arguments in `place`, or in another `cwd`."""
    return partial(run_tracer, cwd=place)


@pytest.fixture(scope="module")
def runs(place):
    """Three traces, one of them a pack, beside what is none."""
    folder = place / "runs"
    folder.mkdir()
    make_trace(folder / "a.trace", {"syscalls": calls("read", "read")}).close()
    make_trace(folder / "b.trace", {"syscalls": calls("read", "write")}).close()
    pack(folder / "b.trace", folder / "c.tar.zst")
    (folder / "readme.txt").write_text("no trace")
    (folder / "plots").mkdir()
    return folder


@pytest.fixture(scope="module")
def study(place):
    """A study of four runs and one that failed."""
    return make_study(place / "s.study", places=PLACES)


def counted(tracer, *arguments):
    found = tracer("report", *arguments, "--json").json
    return {row["name"]: row["calls"] for row in found["tables"]["syscalls"]}


def test_a_report_of_a_folder_adds_its_traces_up(tracer, runs):
    assert counted(tracer, "runs") == {"read": 4, "write": 2}
    assert counted(tracer, "runs/a.trace", "runs/c.tar.zst") == {"read": 3, "write": 1}
    assert counted(tracer, f"file://{runs}") == {"read": 4, "write": 2}


def test_workers_print_what_one_process_prints(tracer, runs, workers):
    for arguments in (("runs", "--json"), ("runs",)):
        alone = tracer("report", *arguments).out
        assert tracer("report", *arguments, "--scheduler", workers).out == alone


def test_a_folder_with_one_trace_is_that_trace(tracer, place, workers):
    shutil.copytree(FIXTURE, place / "one/run.trace")
    alone = tracer("report", "one/run.trace", "--json")
    assert alone.json["trace"] == "one/run.trace"
    assert tracer("report", "one", "--json").out == alone.out
    assert tracer("report", "one", "--json", "--scheduler", workers).out == alone.out


def test_the_json_of_many_says_where_each_is_and_what_it_tells(tracer, study):
    found = tracer("report", "s.study", "--json", "--findings", "3").json
    assert [one["trace"] for one in found["traces"]] == [f"runs/{run}/run.trace" for run in RUNS]
    first = found["traces"][0]
    assert first["location"] == "s.study/runs/4-0/run.trace"
    assert first["duration_s"] == 20.0 and first["complete"] is True
    assert len(found["findings"]) == 3
    assert {"trace", "sentence", "query"} <= found["findings"][0].keys()
    assert {row["trace"] for row in found["tables"]["counters"]} == {
        one["trace"] for one in found["traces"]
    }
    assert next(iter(found["tables"]["counters"][0])) == "trace"


def test_the_text_of_many_is_80_columns_wide_and_says_what_was_lost(tracer, study):
    shown = tracer("report", "s.study", "--by", "phase", "--findings", "0").out
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.startswith("4 traces\n")
    assert "Events were lost in 1 of them" in shown
    assert "--json has the samples of each trace." in shown
    assert re.search(r"^ trace +stage +phase", shown, re.MULTILINE)


def test_a_hostile_name_of_a_trace_cannot_speak_to_the_terminal(tracer, tmp_path):
    (tmp_path / "runs").mkdir()
    for name in ("a", f"b {HOSTILE}".replace("/", "|")):
        make_trace(
            tmp_path / "runs" / name,
            {"syscalls": calls("read"), "counters": [
                {"event": HOSTILE, "target": HOSTILE, "value": 1, "unit": "events", "state": "x"}
            ]},
        ).close()  # fmt: skip
    shown = tracer("report", "runs", cwd=tmp_path)
    assert "\x1b" not in shown.out + shown.err
    assert "[red]" in shown.out
    rows = tracer("query", "runs", "SELECT 1 AS n", "--json", cwd=tmp_path).json
    assert [row["trace"][0] for row in rows] == ["a", "b"]
    assert "\x1b" not in tracer("query", "runs", "SELECT 1 AS n", cwd=tmp_path).out


def test_a_query_of_a_folder_has_the_trace_in_its_first_column(tracer, runs, workers):
    query = "SELECT name, count(*) AS n FROM syscalls GROUP BY 1 ORDER BY 1"
    expected = [
        {"trace": "c.tar.zst", "name": "read", "n": 1},
        {"trace": "c.tar.zst", "name": "write", "n": 1},
        {"trace": "a.trace", "name": "read", "n": 2},
        {"trace": "b.trace", "name": "read", "n": 1},
        {"trace": "b.trace", "name": "write", "n": 1},
    ]
    assert tracer("query", "runs", query, "--json").json == expected
    assert tracer("query", f"file://{runs}", query, "--json").json == [
        *expected[2:], *expected[:2]
    ]  # fmt: skip
    there = tracer("query", "runs", query, "--json", "--scheduler", workers).json
    assert there == expected
    assert tracer("query", "runs/b.trace", query, "--json").json == [
        {"name": "read", "n": 1}, {"name": "write", "n": 1}
    ]  # fmt: skip


def test_a_comparison_is_the_same_wherever_traces_are_looked_at(tracer, study, workers):
    runs = [f"s.study/runs/{one}/run.trace" for one in RUNS]
    named = tracer("compare", *runs, "--json")
    assert tracer("compare", "s.study", "--json").out == named.out
    assert tracer("compare", "s.study", "--json", "--scheduler", workers).out == named.out
    assert named.json["groups"][0]["name"] == "host"
    assert named.json["groups"][0]["traces"][0]["path"] == "s.study/runs/host-0/run.trace"


def test_groups_may_be_folders_and_urls(tracer, study, tmp_path):
    for name in ("host", "four"):
        (tmp_path / name).mkdir()
    for repeat in "01":
        pack(study / f"runs/host-{repeat}/run.trace", tmp_path / f"host/{repeat}.tar.zst")
        shutil.copytree(study / f"runs/4-{repeat}/run.trace", tmp_path / f"four/{repeat}.trace")
    groups = ("--group", "host=host", "--group", f"four=file://{tmp_path}/four")
    found = tracer("compare", *groups, "--json", cwd=tmp_path).json
    assert [(one["name"], len(one["traces"])) for one in found["groups"]] == [
        ("host", 2), ("four", 2)
    ]  # fmt: skip
    assert found["groups"][1]["traces"][0]["path"] == f"file://{tmp_path}/four/0.trace"
    assert found["rows"]
    twice = ("--group", "a=host", "--group", "b=host/0.tar.zst")
    said = one_line(tracer("compare", *twice, status=2, cwd=tmp_path).err)
    assert "host/0.tar.zst is in the groups a and b" in said


@pytest.mark.parametrize(
    "verb", [("report",), ("query", "SELECT 1 AS n FROM syscalls"), ("compare",)]
)
def test_one_damaged_trace_of_many_is_named_in_one_line(tracer, runs, verb, workers, tmp_path):
    table = shutil.copytree(runs, tmp_path / "runs") / "b.trace/events/syscalls.parquet"
    table.write_bytes(table.read_bytes()[:50])
    for scheduler in ((), ("--scheduler", workers)):
        ran = tracer(verb[0], "runs", *verb[1:], *scheduler, status=6, cwd=tmp_path)
        assert "runs/b.trace/events/syscalls.parquet is damaged" in one_line(ran.err)
        assert ran.out == ""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("runs/plots",), 6, "runs/plots is not a trace and contains none"),
        (("runs/plots", "runs"), 6, "runs/plots is not a trace and contains none"),
        (("runs", "gone"), 6, "there is no trace gone"),
        (("runs/readme.txt", "runs"), 6, "runs/readme.txt is a file"),
        (("runs", "--scheduler", "nonsense"), 2, "'nonsense' is not a scheduler"),
        (("runs", "--scheduler", "local:-1"), 2, "'local:-1' is not a scheduler"),
        (("runs", "--scheduler", "http://127.0.0.1:1"), 2, "is not a scheduler"),
        (("runs/a.trace", "--scheduler", "nonsense"), 2, "'nonsense' is not a scheduler"),
        (("runs", "--html", "x.html"), 2, "a page of one trace"),
        (("runs/a.trace", "--html", "x.html", "--scheduler", "local:1"), 2, "of one trace"),
        (("runs", "--baseload", "runs"), 2, "runs holds 3 traces"),
        (("runs", "--by", "nonsense"), 2, "cannot be grouped by 'nonsense'"),
        (("runs", "--by", "phase"), 6, "no trace has the table phases"),
        (("ftp://127.0.0.1:1/runs",), 6, "ftp://127.0.0.1:1/runs cannot be read"),
        (("nosuch://bucket",), 2, "nosuch://bucket cannot be opened"),
        (("file:///nowhere",), 6, "file:///nowhere is not a trace and contains none"),
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused_in_one_line(tracer, runs, arguments, status, said):
    ran = tracer("report", *arguments, status=status)
    assert said in one_line(ran.err)
    assert ran.out == ""


def test_a_table_by_phase_covers_the_traces_with_phases(tracer, tmp_path):
    phase = {"pid": 1, "tid": 1, "name": "train", "start": 0, "end": 10**9}
    make_trace(tmp_path / "with.trace", {"phases": [phase], "syscalls": calls("read")}).close()
    make_trace(tmp_path / "without.trace", {"syscalls": calls("read")}).close()
    said = json.loads(tracer("report", str(tmp_path), "--by", "phase", "--json").out)
    assert said["of"]["by_phase"] == ["with.trace"]
    assert {row["trace"] for row in said["tables"]["by_phase"]} == {"with.trace"}
    assert "the table by_phase covers only with.trace" in said["notes"]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT 1 AS trace", "a column of the query is called trace"),
        ("SELECT * FROM nothing", "runs/c.tar.zst: there is no table or view 'nothing'"),
    ],
)
def test_a_query_of_many_that_cannot_be(tracer, runs, sql, said):
    assert said in one_line(tracer("query", "runs", sql, status=2).err)


@pytest.mark.parametrize("verb", ["report", "compare", "query"])
def test_help_tells_of_schedulers_in_80_columns(tracer, verb):
    shown = tracer(verb, "--help", env={**os.environ, "COLUMNS": "80"}).out
    assert "--scheduler" in shown and "local:N" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_nothing_moves_where_there_is_no_terminal(tracer, runs):
    assert tracer("report", "runs").err == ""
    assert json.loads(tracer("report", "runs", "--json", "--scheduler", "local:1").out)
