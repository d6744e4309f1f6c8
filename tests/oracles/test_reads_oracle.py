"""The view `reads` and a simulated page cache agree on the pages of programs drawn at random."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.oracles.cached_files import SUMS
from tests.oracles.drawing import batches, rows_of_view
from tests.oracles.page_cache import TABLES
from tests.oracles.page_programs import Programs
from tracer.analysis.views.page_uses import PAGE_USES
from tracer.analysis.views.reads import READS

pytestmark = pytest.mark.slow

CASES_OF_A_TRACE = 20
TARGETS = [
    {"name": name, "role": "target", "kind": "pid", "pid": pid}
    for name, pid in (("a", 1), ("b", 2))
]
WITHOUT_FAULTS = {"faults": 0}

Row = dict[str, Any]


def played(cases: list[Random], **options: Any) -> tuple[Programs, dict[str, list[Row]]]:
    programs = Programs(cases[0], {"named": 1} | options)
    for number in range(len(cases)):
        programs.case(number)
    programs.tables["phases"].sort(key=lambda row: row["start"])
    return programs, {name: programs.tables[name] for name in TABLES}


def sums(rows: list[Row]) -> dict[Any, Row]:
    """Rows of `reads` by file, target and epoch, without those that count nothing."""
    found = {}
    for row in rows:
        row["distance"] = round((row["refault_distance"] or 0) * row["refaulted"])
        assert row["hit"] == row["accessed"] - row["missed"]
        assert row["read_ahead"] == row["read"] - row["missed"]
        key = row["dev"], row["ino"], row["target"], row["epoch"]
        if any(row[name] for name in SUMS):
            found[key] = {name: row[name] for name in SUMS}
    return found


def true_sums(programs: Programs) -> dict[Any, Row]:
    counts = programs.account.counts.items()
    rows = {key: {name: count[name] for name in SUMS} for key, count in counts}
    return {key: row for key, row in rows.items() if any(row.values())}


def unused(programs: Programs) -> Counter:
    """Pages of each file that nobody used before they left, or before the end."""
    found = Counter(programs.account.unused)
    for file in programs.made:
        found[(file.dev, file.ino)] += len(file.ahead)
    return +found


@pytest.mark.parametrize("sole", [False, True])
def test_pages_of_calls_are_those_of_the_oracle(sole):
    for cases in batches(CASES_OF_A_TRACE):
        programs, tables = played(cases, weights=WITHOUT_FAULTS, sole=sole)
        rows = rows_of_view(READS, tables, targets=TARGETS)
        assert sums(rows) == true_sums(programs)
        found: Counter = Counter()
        for row in rows:
            found[(row["dev"], row["ino"])] += row["unused"]
        assert +found == unused(programs)


def test_evicters_are_those_of_the_oracle():
    for cases in batches(CASES_OF_A_TRACE):
        programs, tables = played(cases)
        found: Counter = Counter()
        for row in rows_of_view(PAGE_USES, tables, targets=TARGETS):
            found[(row["dev"], row["ino"], row["by_tid"])] += row["evicted"]
        assert +found == programs.account.by
