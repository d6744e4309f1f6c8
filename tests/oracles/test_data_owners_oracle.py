"""The owners of a commit's data and the naive ones agree on commits drawn at random."""

import random
from typing import Any

import pytest

from tests.oracles.data_owners import Commits
from tests.oracles.drawing import batches, grouped, rows_of_view
from tests.oracles.drawn_commits import NUMBERS, SECOND, TABLES, Case
from tracer.analysis.views.catalogue import VIEWS

pytestmark = pytest.mark.slow

CASES = 50
"""Cases in a trace, each on disks of its own, with threads of its own."""
COLUMNS = (
    *("ts", "dur_ns", "tid", "detail", "certainty"),
    *("for_pid", "for_comm", "for_target", "for_container"),
)

Row = dict[str, Any]


def compared(cases: list[random.Random]) -> tuple[dict[int, list[Row]], dict[int, list[Row]]]:
    """Returns the waits of kind sync by case: those of the view, and those of the oracle."""
    drawn = [Case(number, numbers) for number, numbers in enumerate(cases)]
    clock = {"name": "mono", "start_ns": SECOND // 2, "end_ns": 1000 * SECOND}
    manifest: dict[str, Any] = {"disks": [], "mounts": [], "btrfs": [], "clock": clock}
    told: dict[str, list[Row]] = {name: [] for name in TABLES}
    expected: list[Row] = []
    for one in drawn:
        one.run()
        tables = one.told()
        rows = Commits(tables, one.manifest | {"clock": clock}).waits()
        expected += [one.as_numbered(row, "for_pid") for row in rows]
        for name in one.manifest:
            manifest[name] += one.manifest[name]
        for name in TABLES:
            told[name] += [one.as_numbered(row, "pid", "tid") for row in tables[name]]
    rows = rows_of_view(VIEWS["waits"], told, **manifest)
    found = [{name: row[name] for name in COLUMNS} for row in rows if row["kind"] == "sync"]

    def case(row: Row) -> int:
        return int(row["tid"] // NUMBERS - 1)

    return grouped(found, case), grouped(expected, case)


def test_the_owners_of_data_are_those_of_the_oracle():
    for cases in batches(CASES):
        found, expected = compared(cases)
        assert found.keys() == expected.keys()
        for case, rows in expected.items():
            assert found[case] == rows, f"case {case}"
