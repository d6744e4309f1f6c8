"""Every verb, in every format, on hostile traces."""

import csv
import json
import os
import re
import shutil

import pyarrow.parquet as pq
import pytest

from tests.support import perfetto
from tests.support.hostile import FORMULA, make_harmful
from tests.support.recordings import make_hostile

pytestmark = pytest.mark.slow

KINDS = {"harmful": make_harmful, "hostile": lambda folder: make_hostile(folder, 1000)}
TRACE_NAME = os.fsdecode(b"<img src=x onerror=alert(3)>\x1b[2J\n\xff\xe2\x80\xae.trace")


@pytest.fixture(scope="module", params=KINDS)
def traces(request, tmp_path_factory):
    """Two traces of one kind, the first with a name that means harm, too."""
    folder = tmp_path_factory.mktemp(request.param)
    KINDS[request.param](folder / TRACE_NAME).close()
    shutil.copytree(folder / TRACE_NAME, folder / "b.trace")
    return folder / TRACE_NAME, folder / "b.trace"


def check_text(text):
    """Asserts that a text cannot control a terminal."""
    assert all(one.isprintable() for one in text.split("\n")), text
    assert not any(character in text for character in "\x1b\u202e")


def check_page(text):
    """Asserts that a page has no element or script but ours."""
    body = text[: text.index("<script>/**")] if "<script>/**" in text else text
    assert not re.search(r"<(img|iframe|a [^>]*href=\"(?!#))", body)
    assert "<script>alert" not in body and "alert(1)</script" not in body
    assert body.count("<script") >= body.count('<script type="application/json">')
    for one in re.findall(r"<script(.*?)>", body):
        assert one in (' type="application/json"', "")
    for character in "\x1b\u202e":
        assert character not in body


@pytest.mark.parametrize("more", [(), ("--by", "phase")])
def test_the_report_speaks_to_no_terminal(tracer, traces, more):
    ran = tracer("report", traces[0], *more)
    check_text(ran.out)
    check_text(ran.err)


NAME = os.fsdecode(b"x\x1b[2J\n\xff")
"""A name for what a verb writes."""


def test_the_page_of_a_trace_has_names_as_text_alone_and_its_json_is_json(tracer, traces, tmp_path):
    ran = tracer("report", traces[0], "--html", NAME, "--json")
    assert ran.json["tables"]
    check_text(ran.err)
    assert ran.err.count("\n") == 1
    check_page((tmp_path / NAME).read_text())


def test_a_comparison_speaks_to_no_terminal(tracer, traces):
    ran = tracer("compare", *traces)
    check_text(ran.out)
    check_text(ran.err)


def test_the_page_of_a_comparison_has_names_as_text_alone_and_its_json_is_json(
    tracer, traces, tmp_path
):
    groups = [f"<script>alert(1)</script>{n}={path}" for n, path in enumerate(traces)]
    given = ("--group", groups[0], "--group", groups[1])
    ran = tracer("compare", *given, "--html", "x.html", "--json")
    assert len(ran.json["groups"]) == 2
    check_page((tmp_path / "x.html").read_text())


@pytest.mark.parametrize(
    "verb",
    [
        ("info",),
        ("query", "SELECT name FROM syscalls"),
        ("query", "SELECT nothing FROM syscalls"),
        ("simulate",),
        ("simulate", "--config", NAME),
        ("export", "-o", f"{NAME}/nothing/x"),
        ("pack", "-o", NAME),
        ("unpack",),
        ("import", "-o", NAME),
        ("study report",),
    ],
    ids=" ".join,
)
def test_no_verb_speaks_to_a_terminal(tracer, traces, verb):
    name, *more = verb
    ran = tracer(*name.split(), traces[0], *more, status=None)
    check_text(ran.out)
    check_text(ran.err)
    assert ran.err.count("\n") <= 1


@pytest.mark.parametrize("format", ["--csv", "--json"])
def test_a_query_of_traces_with_odd_names_has_their_names(tracer, traces, format):
    ran = tracer("query", traces[0].parent, "SELECT 1 AS n", format)
    assert "\\xff" in ran.out and "\x1b" not in ran.out.replace("\x1b[2J", "")


@pytest.mark.parametrize("format", ["perfetto", "chrome", "csv", "parquet"])
def test_an_export_is_whole_and_inert(tracer, traces, tmp_path, format):
    ran = tracer("export", traces[0], "--format", format, "-o", NAME)
    check_text(ran.err)
    assert ran.err.count("\n") <= 1
    assert ran.out == "" and os.listdir(tmp_path) == [NAME]
    out = tmp_path / NAME
    if format == "perfetto":
        assert perfetto.read(out).tracks
    elif format == "chrome":
        assert json.loads(out.read_text(), parse_constant=pytest.fail)["traceEvents"]
    elif format == "parquet":
        for path in out.iterdir():
            with path.open("rb") as file:
                pq.read_table(file)
    else:
        cells = set()
        for path in out.iterdir():
            with path.open(newline="") as file:
                numbers = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?|-?inf|-?nan", re.IGNORECASE)
                cells |= {c for row in csv.reader(file) for c in row if not numbers.fullmatch(c)}
        assert cells and not [one for one in cells if one.startswith(tuple("=+-@\t\r\n"))]


def test_a_formula_is_a_text_in_a_csv_and_itself_in_parquet(tmp_path):
    from tracer.analysis.exchange.exporting import export

    with make_harmful(tmp_path / "t") as trace:
        export(trace, "csv", tmp_path / "csv")
        export(trace, "parquet", tmp_path / "parquet")
    with (tmp_path / "csv/syscalls.csv").open(newline="") as file:
        names = {row["name"] for row in csv.DictReader(file)}
    assert f"'{FORMULA}" in names and FORMULA not in names and "read" in names
    exact = set(pq.read_table(tmp_path / "parquet/syscalls.parquet")["name"].to_pylist())
    assert FORMULA in exact and f"'{FORMULA}" not in exact
