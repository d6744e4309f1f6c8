"""`tracer query --columns` in every form, and a query without its trace."""

import csv
import io

import pytest

from tests.conftest import ROOT

FIXTURE = ROOT / "fixtures" / "lenet.trace"


@pytest.mark.parametrize("name", ["block", "requests", "block_in_phase", "flushes_in_phase"])
def test_columns_in_json_and_csv_are_those_of_a_query(tracer, name):
    answer = tracer("query", FIXTURE, f"SELECT * FROM {name} LIMIT 0", "--csv").out
    rows = tracer("query", "--columns", name, "--json").json
    assert [row["name"] for row in rows] == answer.strip().split(",")
    assert all(row["type"] and row["doc"] for row in rows)
    text = tracer("query", "--csv", "--columns", name).out
    listed = list(csv.DictReader(io.StringIO(text)))
    assert [{**row, "unit": row["unit"] or None} for row in listed] == rows


def test_columns_have_their_units_and_types(tracer):
    rows = {row["name"]: row for row in tracer("query", "--columns", "block", "--json").json}
    assert (rows["ts"]["type"], rows["ts"]["unit"]) == ("int64", "ns")
    assert rows["dev"]["unit"] is None


def test_columns_of_no_table_are_a_mistake_in_every_form(tracer):
    for form in ("--json", "--csv"):
        ended = tracer("query", "--columns", "wait", form, status=2)
        assert ended.out == "" and "did you mean waits?" in ended.err


@pytest.mark.parametrize(("words", "what"), [((), "trace"), ((FIXTURE,), "query")])
def test_a_query_names_what_is_missing(tracer, words, what):
    assert tracer("query", *words, status=2).err == (
        f'tracer: no {what} is given; e.g. tracer query T "SELECT count(*) FROM block"\n'
    )
