"""`tracer query`: values of all types, also within lists and structures."""

import csv
import io
import json
import os
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support.traces import make_trace
from tracer.analysis.cli.query import _answer, _print_csv, _print_json
from tracer.analysis.report.tables import records
from tracer.store.trace import dump


@pytest.fixture
def trace(tmp_path):
    """The trace `t` without rows."""
    make_trace(tmp_path / "t", {"syscalls": []}).close()


def test_values_in_lists_and_structures_are_as_exact_as_others(tracer, tmp_path):
    make_trace(tmp_path / "t", {"syscalls": []}).close()
    large = 2**127 - 1
    query = (
        f"SELECT [{large}::HUGEINT] AS a, [DATE '2020-01-02', NULL] AS b, [INTERVAL 1 DAY] AS c,"
        f" {{'x': TIMESTAMP '2020-01-02', 'y': [{large}::HUGEINT]}} AS d,"
        f" MAP {{'k': [DATE '2020-01-02']}} AS e, [TIMESTAMP '2020-01-02 03:04:05.6'] AS f,"
        " [{'n': ['nan'::DOUBLE], 't': TIME '10:11:12'}] AS g, NULL::DATE[] AS h"
    )
    (row,) = tracer("query", "t", query, "--json").json
    assert row == {
        "a": [large],
        "b": ["2020-01-02", None],
        "c": ["1 day"],
        "d": {"x": "2020-01-02 00:00:00", "y": [large]},
        "e": {"k": ["2020-01-02"]},
        "f": ["2020-01-02 03:04:05.6"],
        "g": [{"n": [None], "t": "10:11:12"}],
        "h": None,
    }


def test_a_list_in_a_csv_has_all_its_values(tracer, tmp_path):
    make_trace(tmp_path / "t", {"syscalls": []}).close()
    query = "SELECT list(i ORDER BY i) AS l FROM range(3000) t(i)"
    name, cell = cells(tracer("query", "t", query, "--csv").out)
    assert name == ["l"] and json.loads(*cell) == list(range(3000))


@pytest.mark.parametrize(
    ("sql", "cell"),
    [
        ("['x', 'y']", '["x", "y"]'),
        ("['=1', 'say \"a\"']", r'["=1", "say \"a\""]'),
        ("[[1, 2], [3]]", "[[1, 2], [3]]"),
        ("[1, NULL]", "[1, null]"),
        ("[9007199254740993, NULL]", "[9007199254740993, null]"),
        ("['nan'::DOUBLE, 1, 'inf'::DOUBLE]", "[null, 1.0, null]"),
        ("{'a': [1, 2], 'b': 'é'}", '{"a": [1, 2], "b": "é"}'),
        ("[{'a': NULL}]", '[{"a": null}]'),
        ("MAP {'k': [1.5], 'l': []}", '{"k": [1.5], "l": []}'),
        ("[DATE '2020-01-02', NULL]", '["2020-01-02", null]'),
        ("[TIMESTAMP '2020-01-02 03:04:05.6']", '["2020-01-02 03:04:05.6"]'),
        ("['a'::BLOB]", '["a"]'),
        ("'a'::BLOB", "a"),
        ("'=1'::BLOB", "'=1"),
        ("[1, 2]::INT[2]", "[1, 2]"),
        ("[]", "[]"),
        ("NULL::INT[]", ""),
        ("['a' || chr(27) || chr(13)]", r'["a\u001b\r"]'),
    ],
)
def test_a_list_or_a_structure_is_json_in_a_csv_and_a_table(tracer, tmp_path, sql, cell):
    make_trace(tmp_path / "t", {"syscalls": []}).close()
    query = f"SELECT {sql} AS a, 23 AS b"
    assert cells(tracer("query", "t", query, "--csv").out) == [["a", "b"], [cell, "23"]]
    shown = tracer("query", "t", query).out.splitlines()[3]
    assert shown.rsplit("23", 1)[0].strip() == (cell.removeprefix("'") or "-")
    if "[" in cell or "{" in cell:
        assert tracer("query", "t", query, "--json").json == [{"a": json.loads(cell), "b": 23}]


def test_a_long_csv_has_each_row_once(tracer, tmp_path):
    make_trace(tmp_path / "t", {"syscalls": []}).close()
    rows = range(20_001)
    query = "SELECT i, [i] AS l, CASE WHEN i % 2 = 0 THEN 'x' || i END AS t FROM range(20001) r(i)"
    out = tracer("query", "t", query + " ORDER BY i", "--csv").out
    texts = (f"x{i}" if i % 2 == 0 else "" for i in rows)
    assert out == "i,l,t\n" + "".join(f"{i},[{i}],{t}\n" for i, t in zip(rows, texts, strict=True))
    assert tracer("query", "t", query + " WHERE i < 0", "--csv").out == "i,l,t\n"


def test_numbers_of_a_union_are_the_same_in_csv_and_json(tracer, tmp_path):
    make_trace(tmp_path / "t", {"syscalls": []}).close()
    query = "SELECT unnest([2::UNION(i INT, d DOUBLE), 2.5::DOUBLE, NULL]) AS u, 1 AS n"
    out = tracer("query", "t", query, "--csv").out
    assert out == "u,n\n2,1\n2.5,1\n,1\n"


@pytest.mark.parametrize("rows", [0, 1, 10_000, 10_001])
def test_rows_of_json_are_one_list_in_however_many_parts_they_are_made(capsys, rows):
    frame = pd.DataFrame({"n": pd.array(range(rows), "Int64"), "t": ["\x1b], [é"] * rows})
    _print_json(frame)
    out = capsys.readouterr().out
    assert out == dump(records(frame)) + "\n"
    assert json.loads(out) == [{"n": n, "t": "\x1b], [é"} for n in range(rows)]


@pytest.mark.parametrize("print_rows", [_print_csv, _print_json])
def test_a_closed_pipe_ends_the_output_before_the_rest_is_made(monkeypatch, print_rows):
    class Value:
        made = 0

        def __str__(self):
            Value.made += 1
            return "value"

    there, here = os.pipe()
    os.close(there)
    with monkeypatch.context() as patch, os.fdopen(here, "w", 1) as closed:
        patch.setattr(sys, "stdout", closed)
        with pytest.raises(BrokenPipeError):
            print_rows(pd.DataFrame({"a": [Value() for _ in range(50_000)]}))
        with Path(os.devnull).open("w") as nowhere:  # for the text that was not written
            os.dup2(nowhere.fileno(), here)
    assert 0 < Value.made < 50_000


def cells(out):
    return list(csv.reader(io.StringIO(out)))


def test_a_sum_of_integers_is_an_integer(tracer, trace):
    asked = (
        "SELECT sum(n) AS total, sum(n) FILTER (n > 9) AS none, sum(n) / 2 AS half"
        " FROM range(4) t(n)"
    )
    assert tracer("query", "t", asked, "--json").json == [{"total": 6, "none": None, "half": 3.0}]
    assert tracer("query", "t", asked, "--csv").out.splitlines()[1] == "6,,3.0"


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        ("sum(9007199254740993)", 2**53 + 1),
        ("-sum(9007199254740993)", -(2**53) - 1),
        ("sum(9223372036854775807) + 23", 2**63 + 22),
        ("170141183460469231731687303715884105727::HUGEINT", 2**127 - 1),
        ("340282366920938463463374607431768211455::UHUGEINT", 2**128 - 1),
        ("sum(9007199254740993::DECIMAL(18,0))", 2**53 + 1),
        ("18446744073709551615::UBIGINT", 2**64 - 1),
    ],
)
def test_an_integer_of_any_size_is_exact(tracer, trace, sql, number):
    query = f"SELECT {sql} AS a, NULLIF({sql}, {sql}) AS none; -- a comment"
    assert tracer("query", "t", query, "--json").json == [{"a": number, "none": None}]
    assert tracer("query", "t", query, "--csv").out == f"a,none\n{number},\n"
    assert tracer("query", "t", query).out.splitlines()[3].split() == [str(number), "-"]


def test_large_sums_are_right_aligned_as_other_numbers(tracer, trace):
    query = "SELECT sum(9223372036854775807) OVER (ORDER BY i) AS total FROM range(3) t(i)"
    rows = tracer("query", "t", query).out.splitlines()[3:6]
    assert len({len(row.rstrip()) for row in rows}) == 1
    assert [int(row) for row in rows] == [(2**63 - 1) * n for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("DATE '2026-01-02'", "2026-01-02"),
        ("'infinity'::DATE", "infinity"),
        ("INTERVAL '1 month 2 days 3 hours'", "1 month 2 days 03:00:00"),
        ("to_microseconds(-5400000000)", "-01:30:00"),
        ("INTERVAL '-1 month -2 days'", "-1 month -2 days"),
        ("TIMESTAMP '2026-01-02 03:04:05.678'", "2026-01-02 03:04:05.678"),
        ("TIME '12:34:56.5'", "12:34:56.5"),
    ],
)
def test_times_are_texts_as_in_duckdb(tracer, trace, sql, text):
    query = f"SELECT {sql} AS a, NULLIF({sql}, {sql}) AS none"
    assert tracer("query", "t", query, "--json").json == [{"a": text, "none": None}]
    assert tracer("query", "t", query, "--csv").out == f"a,none\n{text},\n"
    assert tracer("query", "t", query).out.splitlines()[3].split("  ")[0].strip() == text


def test_rows_with_large_sums_keep_their_order_and_columns_their_names(tmp_path):
    query = (
        'SELECT sum(i) AS "a ""b", count(*) AS n, DATE \'2026-01-02\' AS n'
        " FROM range(300000) t(i) GROUP BY i ORDER BY i DESC"
    )
    with make_trace(tmp_path / "t", {"syscalls": []}) as trace:
        for _ in range(2):
            found = _answer(trace, query)
            assert list(found) == ['a "b', "n", "n_1"]
            assert found['a "b'].tolist() == list(range(299_999, -1, -1))
        assert set(_answer(trace, "SHOW TABLES")["name"]) == {
            "loss",
            "loss_rows",
            "syscalls",
            "syscalls_rows",
        }
