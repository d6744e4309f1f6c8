"""`tracer query`: tables and views in SQL, their examples, and their completion."""

import os
import subprocess
import sys

import pytest

from analysis.views.catalogue import VIEWS
from tests.conftest import ROOT
from tests.support.traces import make_trace
from tracer.store.trace import ALL_TABLES

FIXTURE = ROOT / "fixtures" / "lenet.trace"


def one_line(text):
    assert text.count("\n") == 1, text
    assert text.startswith("tracer: ")
    return text


def test_no_progress_bar_is_among_the_rows(tracer):
    query = "SELECT current_setting('enable_progress_bar') AS shown"
    assert tracer("query", FIXTURE, query, "--json").json == [{"shown": False}]


def test_json_is_one_list_of_rows(tracer):
    rows = tracer(
        "query", FIXTURE, "SELECT name, count(*) AS n FROM phases GROUP BY 1", "--json"
    ).json
    assert {row["name"] for row in rows} >= {"train", "step", "forward"}


def test_the_derived_views_are_there(tracer):
    for view in VIEWS:
        rows = tracer("query", FIXTURE, f"SELECT count(*) AS n FROM {view}", "--json").json
        # The fixture's job waited for nothing that events tell of.
        assert rows[0]["n"] > 0 or view == "stalls"


def test_a_view_without_its_table_is_one_line(tracer, tmp_path):
    make_trace(tmp_path / "t", {"syscalls": []})
    said = one_line(tracer("query", "t", "SELECT * FROM requests", status=6).err)
    assert "no table block" in said
    assert tracer("query", "t", "SELECT count(*) AS steps FROM syscalls", "--json").json == [
        {"steps": 0}
    ]


def test_help_has_an_example_of_every_table_and_view(tracer):
    shown = tracer("query", "--help").out
    for name in (*ALL_TABLES, *VIEWS):
        assert f" {name}: SELECT" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("begun", "becomes"),
    [
        ("SELECT * FROM sys", "SELECT * FROM syscalls"),
        ("SELECT * FROM sta", "SELECT * FROM stalls"),
        (
            "SELECT * FROM requests WHERE service_l",
            "SELECT * FROM requests WHERE service_latency_ns",
        ),
        ("FROM block_in_phase SELECT rw", "FROM block_in_phase SELECT rwbs"),
    ],
)
def test_names_are_completed(tracer, begun, becomes):
    words = f"tracer query run.trace '{begun}"
    asked = {"_TRACER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    command = "import sys; sys.argv = ['tracer']\nfrom tracer.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True,
        env={**os.environ, **asked},
    )  # fmt: skip
    assert becomes in ran.stdout.splitlines()


def test_a_query_from_stdin(tracer):
    assert tracer("query", FIXTURE, "-", "--csv", input="SELECT 23 AS n").out == "n\n23\n"


@pytest.mark.parametrize("sql", ["SELEC", "SELECT * FROM nothing", "", "SELECT 1/"])
def test_a_query_that_fails(tracer, sql):
    one_line(tracer("query", FIXTURE, sql, status=2).err)
