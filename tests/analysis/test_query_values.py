"""`tracer query --json`: values of all types, also within lists and structures."""

from tests.support.traces import make_trace


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
    assert "['2020-01-02', None]" in tracer("query", "t", query, "--csv").out
