"""The view `flushes` and the naive one agree on write-backs drawn at random."""

import random

import pytest

from tests.oracles.drawing import batches, grouped, rows_of_view
from tests.oracles.drawn_writes import SECOND, TABLES, Case
from tests.oracles.flushes import flushes_of
from tracer.analysis.views.writing.flushes import FLUSHES

pytestmark = pytest.mark.slow

CASES = 100
"""Cases in a trace, each on a disk of its own, with threads of its own."""
COLUMNS = (
    *("ts", "dev", "sector", "reason", "call", "ino", "root", "dirtier", "dirtiers", "target"),
    *("dirtier_comm", "dirtied_ns", "container", "whose", "certainty"),
)


def compared(cases: list[random.Random]) -> tuple[dict, dict, list[Case]]:
    """Rows of the view and of the oracle by case, and the cases as they were drawn."""
    drawn = [Case(n, numbers, n > 2 * CASES // 3) for n, numbers in enumerate(cases)]
    tables = {name: [row for one in drawn for row in one.tables[name]] for name in TABLES}
    names = ("disks", "mounts", "btrfs")
    manifest: dict = {name: [row for one in drawn for row in one.manifest[name]] for name in names}
    manifest["clock"] = {"name": "mono", "start_ns": SECOND // 2, "end_ns": 1000 * SECOND}
    numbered = [one.with_numbers() for one in drawn]
    told = {name: [row for one in numbered for row in one[name]] for name in TABLES}
    rows = rows_of_view(FLUSHES, told, **manifest)
    found = [{name: row[name] for name in COLUMNS} for row in rows]
    number = {pid: number for one in drawn for pid, number in one.number.items()} | {None: None}
    expected = [
        row | {"dirtier": number[row.get("dirtier")]} for row in flushes_of(tables, manifest)
    ]

    def case(row: dict) -> int:
        return row["ts"] // SECOND - 1

    return grouped(found, case), grouped(expected, case), drawn


def test_the_flushes_of_disks_are_those_of_the_oracle():
    for cases in batches(CASES):
        found, expected, _ = compared(cases)
        assert found == expected
