"""Studies that somebody else made: what is wrong is left out and said, and costs little."""

import json
import os
import shutil

import pytest

from tests.support.budget import MEMORY_BYTES, run_within
from tests.support.hostile import make_harmful
from tests.support.studies import make_study
from tracer.analysis.page.cells import cell
from tracer.analysis.studies.extract_columns import COLUMNS
from tracer.analysis.studies.extracts import MAKERS, of_trace, read_extracts
from tracer.analysis.studies.measures import FILE as MEASURES
from tracer.analysis.studies.report.contents import contents
from tracer.analysis.studies.report.markdown import markdown
from tracer.analysis.studies.report.page import page
from tracer.analysis.studies.runs import read_runs
from tracer.probes.errors import TracerError

pytestmark = pytest.mark.slow

EXTRACTS = "extracts.json"
TEXT = "\x1b[2J<img src=x>\u202e\n"
ODD = os.fsdecode(b"\xff\x1b[2J<img src=x>\n")


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A study whose tables were made once, without its traces."""
    folder = make_study(tmp_path_factory.mktemp("study") / "s", reported=True)
    for trace in folder.glob("runs/*/run.trace"):
        shutil.rmtree(trace)
    return folder


@pytest.fixture
def study(reported, tmp_path):
    """A copy of it, to do harm to."""
    return shutil.copytree(reported, tmp_path / "s")


def changed(path, change):
    """Replaces a file's JSON by the result of `change`."""
    told = json.loads(path.read_text())
    told = change(told) or told
    path.write_text(json.dumps(told))


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def sparse(path):
    path.write_bytes(b"")
    os.truncate(path, 1 << 40)


def link(path):
    path.rename(path.with_name("elsewhere.json"))
    path.symlink_to("elsewhere.json")


def folder_in_its_place(path):
    path.unlink()
    path.mkdir()


def text(said):
    return lambda path: path.write_text(said)


FILES = {
    "a FIFO": fifo,
    "a sparse file": sparse,
    "a link": link,
    "a folder": folder_in_its_place,
    "no JSON": text("{"),
    "no object": text("[]"),
    "null": text("null"),
    "deep": text('{"nobody":' + "[" * 400_000 + "]" * 400_000 + "}"),
    "a long number": text('{"repeat":' + "9" * 5000 + "}"),
    "no UTF-8": lambda path: path.write_bytes(b'{"state":"\xff"}'),
    "many parts": text('{"nobody":[' + "0," * 500_000 + "0]}"),
}

TOLD = {
    "no state": lambda told: told.pop("state") and None,
    "another state": lambda told: told.update(state="x"),
    "no factors": lambda told: told.pop("factors") and None,
    "factors of another kind": lambda told: told.update(factors=[]),
    "no place": lambda told: told["factors"].pop("where") and None,
    "no mode": lambda told: told["factors"].pop("mode") and None,
    "a number for a name": lambda told: told["factors"].update(model=3),
    "an object for a number": lambda told: told["factors"].update(cpus={"no": "number"}),
    "a text for a number": lambda told: told["factors"].update(workers="4"),
    "a number that is too large": lambda told: told.update(repeat=10**300),
    "infinity": lambda told: told["factors"].update(cpus=float("inf")),
    "a repeat that is a list": lambda told: told.update(repeat=[]),
    "a place that is none": lambda told: told["factors"].update(where="../x"),
    "a device that is none": lambda told: told.update(dev="7:0'; DROP TABLE x"),
    "summaries of numbers": lambda told: told.update(summaries=[3]),
    "a summary of texts": lambda told: told.update(summaries=[{"workers": "x"}]),
    "clients of another kind": lambda told: told.update(summaries=[{"client": [1]}]),
    "versions of another kind": lambda told: told.update(versions={"python": 3, "packages": []}),
    "a mode of another kind": lambda told: told.update(power_mode={"settings": {"cores": "x"}}),
    "a long name": lambda told: told["factors"].update(model="x" * 10_000),
}


def left_out(folder, id, state="damaged"):
    """The reason for which a run, and no other, is left out."""
    _, runs, found = read_runs(folder)
    assert id not in set(runs["id"]) and len(runs) == 5
    (reason,) = (one["reason"] for one in found if (one["id"], one["state"]) == (id, state))
    assert "\n" not in reason and len(reason) < 1000
    return reason


@pytest.mark.parametrize("harm", FILES.values(), ids=FILES)
def test_a_run_whose_file_is_none_is_left_out_and_said(study, harm):
    harm(study / "runs/1-0/run.json")
    assert "run.json" in left_out(study, "1-0")


@pytest.mark.parametrize("harm", TOLD.values(), ids=TOLD)
def test_a_run_that_tells_what_cannot_be_is_left_out_and_said(study, harm):
    changed(study / "runs/1-0/run.json", harm)
    left_out(study, "1-0")


@pytest.mark.parametrize("harm", FILES.values(), ids=FILES)
@pytest.mark.parametrize("name", [MEASURES, "study.json"])
def test_no_other_file_of_a_study_costs_much_or_ends_in_a_traceback(study, name, harm):
    harm(study / name if name == "study.json" else study / "runs/1-0" / name)
    if name == "study.json":
        with pytest.raises(TracerError) as error:
            read_runs(study)
        assert "\n" not in str(error.value)
    else:
        assert MEASURES in left_out(study, "1-0")


def test_measures_name_no_run_and_no_factor(study):
    """An id of ../.. would have the extracts read, and written, there."""
    kept = study / "runs/1-0" / MEASURES
    more = {"id": "../../../elsewhere", "model": "other", "repeat": 7.0, "power_mode_by": "x"}
    changed(kept, lambda told: told["measures"].update(more))
    _, runs, _ = read_runs(study)
    (row,) = runs[runs["id"] == "1-0"].to_dict("records")
    assert (row["model"], row["repeat"], row["power_mode_by"]) == ("lenet", 0, {})


@pytest.mark.parametrize("value", ["x", [], {}, True, 10**400])
def test_a_measure_that_is_no_number_leaves_its_run_out(study, value):
    changed(study / "runs/1-0" / MEASURES, lambda told: told["measures"].update(faults=value))
    left_out(study, "1-0")


def test_a_run_that_has_not_ended_and_one_that_has_not_begun_are_said(study, tracer, tmp_path):
    (study / "runs/1-0/run.json").unlink()
    changed(study / "study.json", lambda told: told.update(runs=[{}] * 9))
    left_out(study, "1-0", "not ended")
    said = "5 runs, 1 failed, 1 not ended, 2 not begun"
    assert contents(study, drawn=False).said == said
    assert said in tracer("study", "report", study).out
    told = tracer("study", "report", study, "--json").json
    assert {(one["id"], one["state"]) for one in told["left_out"]} == {
        ("1-0", "not ended"),
        ("failed", "failed"),
    }
    assert told["not_begun"] == 2
    assert said in tracer("study", "report", study, "-o", "x.html").err
    assert said in (tmp_path / "x.html").read_text()


def test_the_folder_of_a_run_is_no_link(study, tmp_path):
    place = study / "runs/1-0"
    for name in (MEASURES, EXTRACTS):
        (place / name).unlink()
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in left_out(study, "1-0")
    assert os.listdir(tmp_path / "elsewhere") == ["run.json"]
    (study / "runs").rename(tmp_path / "runs")
    (study / "runs").symlink_to(tmp_path / "runs")
    with pytest.raises(TracerError, match="is a symbolic link"):
        read_runs(study)


def test_many_large_files_of_runs_are_not_all_read(study):
    told = json.loads((study / "runs/1-0/run.json").read_text())
    told["nobody"] = list(range(10_000, 55_000))
    (study / "runs/1-0/run.json").write_text(json.dumps(told, indent=12)[: 1 << 20])
    for number in range(3000):
        (study / f"runs/x{number}").mkdir()
        os.link(study / "runs/1-0/run.json", study / f"runs/x{number}/run.json")
    left_out = run_within(MEMORY_BYTES, read_runs, study)[2]
    assert sum("all such files" in one["reason"] for one in left_out) > 1000


def test_more_runs_than_a_study_has_are_refused(study):
    for number in range(10_001):
        (study / f"runs/x{number}").mkdir()
    with pytest.raises(TracerError, match="more than 10000 runs"):
        read_runs(study)


def table(name, change):
    return lambda told: change(told["tables"][name])


EXTRACTED = {
    "no table": lambda told: told["tables"].pop("counters") and None,
    "tables of another kind": lambda told: told.update(tables=[]),
    "a table that is none": lambda told: told["tables"].update(counters=3),
    "a table without rows": table("counters", lambda t: t.pop("rows") and None),
    "no facts": lambda told: told.pop("facts") and None,
    "facts of another kind": lambda told: told["facts"].update(memory_bytes="x"),
    "facts that lack one": lambda told: told["facts"].pop("complete") and None,
    "a count that cannot be": lambda told: told["facts"].update(lost_events=-(10**30)),
    "other columns": table("counters", lambda t: t.update(columns=["event", "role", "x"])),
    "an id for a column": table("counters", lambda t: t.update(columns=["id", "role", "value"])),
    "too many columns": table("counters", lambda t: t.update(columns=[*t["columns"], "x"])),
    "columns in another order": table("counters", lambda t: t["columns"].reverse()),
    "rows that are too short": table("counters", lambda t: t["rows"].append(["x"])),
    "a text for a number": table("counters", lambda t: t["rows"].append(["x", "job", "y"])),
    "a number for a text": table("counters", lambda t: t["rows"].append([1, "job", 1.0])),
    "a list for a text": table("counters", lambda t: t["rows"].append([[], "job", 1.0])),
    "a number that is too large": table(
        "call_chains", lambda t: t["rows"].append(["x", "x", 10**40, 0.5, 1, 0.5, 0.5, "x", 1, "x"])
    ),
    "infinity": table(
        "layer_curve", lambda t: t["rows"].append(["x", "all", 2, 1, 0, 1, float("inf"), 1.0, 1.0])
    ),
    "many rows": table(
        "interval_quantiles", lambda t: t.update(rows=[["wakes", 0.5, 1.0]] * 300_000)
    ),
}


@pytest.mark.parametrize("harm", EXTRACTED.values(), ids=EXTRACTED)
def test_extracts_of_another_shape_are_refused_and_said(study, harm):
    changed(study / "runs/1-0" / EXTRACTS, harm)
    extracts_are_left_out(study)


@pytest.mark.parametrize("harm", FILES.values(), ids=FILES)
def test_extracts_that_are_no_file_of_ours_are_refused_and_said(study, harm):
    harm(study / "runs/1-0" / EXTRACTS)
    extracts_are_left_out(study)


def extracts_are_left_out(study):
    ((id, reason),) = read_extracts(study, read_runs(study)[1]).left_out
    assert id == "1-0" and EXTRACTS in reason
    assert "\n" not in reason and len(reason) < 1000


def test_page_and_markdown_name_the_same_left_out_runs(study):
    (study / "runs/1-0/run.json").write_text("{")
    (study / "runs/1-1" / EXTRACTS).write_text("{")
    found = contents(study)
    assert found.said == "5 runs, 1 failed, 1 damaged"
    assert {(id, became) for id, became, _ in found.left_out} == {
        ("1-0", "damaged"), ("failed", "failed"), ("1-1", "has no tables and figures"),
    }  # fmt: skip
    for written in (page(found), markdown(found)):
        for _, became, reason in found.left_out:
            assert became in written and cell(reason)[:8] in written
        assert found.said in written and "Runs that are left out" in written


def left_out_of_tables(folder):
    return len(read_extracts(folder, read_runs(folder)[1]).left_out)


def test_large_extracts_of_many_runs_are_not_all_read(study):
    """Each of them may be; all together would take gigabytes."""
    place = study / "runs/1-0"
    rows = [["wakes", 0.5, 1.0]] * 100_000
    changed(place / EXTRACTS, table("interval_quantiles", lambda t: t.update(rows=rows)))
    facts = json.loads((place / "run.json").read_text())
    for number in range(300):
        (study / f"runs/x{number}").mkdir()
        another = json.dumps(facts | {"repeat": 2 + number})
        (study / f"runs/x{number}/run.json").write_text(another)
        for name in (MEASURES, EXTRACTS):
            os.link(place / name, study / f"runs/x{number}" / name)
    assert run_within(MEMORY_BYTES, left_out_of_tables, study) > 100


def test_every_extract_of_a_trace_that_means_harm_has_the_columns_that_are_declared(tmp_path):
    assert COLUMNS.keys() == MAKERS.keys()
    with make_harmful(tmp_path / "t") as trace:
        tables = of_trace(trace)["tables"]
    there = {name: made["columns"] for name, made in tables.items() if "columns" in made}
    assert len(there) > 5
    assert there == {name: list(COLUMNS[name]) for name in there}


def test_names_of_an_enemy_are_text_on_a_terminal_and_in_a_page(study, tracer, tmp_path):
    (study / "runs/1-0").rename(study / "runs" / ODD)
    changed(study / "study.json", lambda told: told.update(name=TEXT, about=TEXT))
    changed(study / "runs/failed/run.json", lambda told: told.update(reason=TEXT))
    for path in study.glob("runs/*/run.json"):
        changed(path, lambda told: told["factors"].update(model=TEXT))
    place = study.rename(study.with_name(ODD))
    for ran in (
        tracer("study", "report", place),
        tracer("study", "report", place, "-o", "x.html"),
        tracer("study", "report", place, "-o", "x.md", env={**os.environ, "PATH": ""}),
    ):
        for said in (ran.out, ran.err):
            assert all(one.isprintable() for one in said.split("\n")), said
    assert tracer("study", "report", place, "--json").json["runs"] == 6
    for name in ("x.html", "x.md"):
        written = (tmp_path / name).read_text()
        body = written[: written.index("<script>/**")] if "<script>/**" in written else written
        assert "<img" not in body and "\x1b" not in body and "\u202e" not in body
