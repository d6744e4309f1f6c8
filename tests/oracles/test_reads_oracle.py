"""The view `reads` and a simulated page cache agree on the pages of programs drawn at random."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Any

import pytest

from tests.oracles.cached_files import SUMS
from tests.oracles.drawing import batches, rows_of_view
from tests.oracles.page_cache import TABLES
from tests.oracles.page_programs import EVERYTHING, Programs
from tests.support.traces import make_trace
from tracer.analysis.memory.recorded import recorded
from tracer.analysis.views.reading.page_uses import PAGE_USES
from tracer.analysis.views.reading.reads import READS

pytestmark = pytest.mark.slow

CASES_OF_A_TRACE = 40
TARGETS = [
    {"name": name, "role": "target", "kind": "pid", "pid": pid}
    for name, pid in (("a", 1), ("b", 2))
]
ONLY_FAULTS = {name: 0 for name in EVERYTHING if name not in ("faults", "mark", "direct")}
"""The view counts the pages of a window at the thread's next event: nothing evicts them before."""
COUNTS = ("written", "unused", "evicted", "removed")
HOSTILE = (
    *(("index", value) for value in (None, 1 << 40, 1 << 63, (1 << 64) - 1)),
    *(("pages", value) for value in (None, -1, 0, 1 << 40, (1 << 63) - 1, -(1 << 63))),
    *(("tid", value) for value in (-1, -(1 << 31), (1 << 31) - 1)),
    *(("ino", value) for value in (None, (1 << 64) - 1)),
    *(("pid", -1), ("dev", None), ("event", "unknown"), ("continues", None)),
)

Row = dict[str, Any]


def played(cases: list[Random], **options: Any) -> tuple[Programs, dict[str, list[Row]]]:
    programs = Programs(cases[0], {"named": 1} | options)
    for number in range(len(cases)):
        programs.case(number)
    programs.tables["phases"].sort(key=lambda row: row["start"])
    return programs, {name: programs.tables[name] for name in TABLES}


def sums(rows: list[Row]) -> dict[Any, Row]:
    """Rows of `reads` by file, target, epoch and pass, without those that count nothing."""
    found = {}
    for row in rows:
        row["distance"] = round((row["refault_distance"] or 0) * row["refaulted"])
        assert row["hit"] == row["accessed"] - row["missed"]
        assert row["read_ahead"] == row["read"] - row["missed"]
        key = row["dev"], row["ino"], row["target"], row["epoch"], row["pass"]
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


def kernel(options: Row) -> dict[str, bool]:
    """The trials of the recorder, as the manifest has them."""
    return {name: options.get(name, False) for name in ("maps_folios", "maps_written_folios")}


def agree(cases: list[Random], **options: Any) -> Programs:
    programs, tables = played(cases, **options)
    rows = rows_of_view(READS, tables, targets=TARGETS, kernel=kernel(options))
    assert sums(rows) == true_sums(programs)
    found: Counter = Counter()
    for row in rows:
        found[(row["dev"], row["ino"])] += row["unused"]
    # Pages that a call under way has yet to reach count as used when it begins.
    apart = sum((found - unused(programs)).values()) + sum((unused(programs) - found).values())
    assert apart <= 2 + found.total() // 30
    return programs


def test_pages_of_calls_are_those_of_the_oracle():
    for cases in batches(CASES_OF_A_TRACE)[::2]:
        agree(cases, weights={"faults": 0})


def test_epochs_of_the_only_job_have_the_pages_of_its_target():
    """Other programs and other targets read amid its epochs."""
    strangers = 0
    for cases in batches(CASES_OF_A_TRACE):
        programs = agree(cases, weights={"faults": 0, "mark": 8}, sole=True)
        strangers += programs.account.strangers
    assert strangers > 0


@pytest.mark.parametrize("maps_folios", [False, True])
def test_pages_of_mapped_files_are_those_of_the_oracle(maps_folios):
    for cases in batches(CASES_OF_A_TRACE)[maps_folios::2]:
        agree(cases, weights=ONLY_FAULTS, reclaims=0, maps_folios=maps_folios)


def test_folios_written_through_mappings_are_those_of_the_oracle():
    """Whole folios are mapped; `unused` leaves out all of their pages."""
    mapped = {"maps_folios": True, "maps_written_folios": True}
    for cases in batches(CASES_OF_A_TRACE)[::2]:
        agree(cases, weights=ONLY_FAULTS, reclaims=0, **mapped)


@pytest.mark.parametrize(
    "options",
    [
        {"weights": {"faults": 0}},
        {"weights": ONLY_FAULTS, "reclaims": 0},
        {"weights": ONLY_FAULTS, "reclaims": 0, "maps_written_folios": True},
    ],
)
def test_the_models_of_memory_use_the_pages_of_the_oracle(tmp_path, options):
    for number, cases in enumerate(batches(CASES_OF_A_TRACE)[::5]):
        programs, tables = played(cases, **options)
        used: Counter = Counter()
        for (_, _, *group), count in programs.account.counts.items():
            used[tuple(group)] += count["accessed"] if group[0] else 0
        made = {"targets": TARGETS, "kernel": kernel(options)}
        with make_trace(tmp_path / str(number), tables, **made) as trace:
            found = recorded(trace)
        groups = found.groups[["target", "epoch", "pass"]].astype(object)
        names = groups.where(groups.notna(), None).itertuples(index=False, name=None)
        told = {
            group: pages
            for group, pages in zip(names, found.runs.accessed().tolist(), strict=False)
            if group[0]
        }
        assert +Counter(told) == +used


def test_an_epoch_that_ends_amid_calls_has_no_count_below_0():
    for cases in batches(CASES_OF_A_TRACE)[::2]:
        weights = {"faults": 0, "submit": 0, "mark": 6}
        programs, tables = played(cases, weights=weights, amid=True)
        rows = rows_of_view(READS, tables, targets=TARGETS)
        assert not [row for row in rows if min(row["hit"], row["read_ahead"]) < 0]
        assert added_up(sums(rows)) == added_up(true_sums(programs))


def test_pages_that_windows_lack_leave_no_count_of_an_epoch_below_0():
    """Parts of mapped files are cached before the recording, and many epochs pass."""
    weights = ONLY_FAULTS | {"mark": 6}
    for cases in batches(CASES_OF_A_TRACE)[::2]:
        _, tables = played(cases, weights=weights, reclaims=0, parts=True)
        rows = rows_of_view(READS, tables, targets=TARGETS)
        assert any(row["mapped"] for row in rows)
        for row in rows:
            assert min(row["hit"], row["mapped"], row["read_ahead"]) >= 0


def added_up(rows: dict[Any, Row]) -> dict[Any, Counter]:
    """Sums over the epochs."""
    found: dict[Any, Counter] = defaultdict(Counter)
    for (dev, ino, target, *_), row in rows.items():
        found[dev, ino, target].update(row)
    return found


def test_evicters_are_those_of_the_oracle():
    for cases in batches(CASES_OF_A_TRACE)[::3]:
        programs, tables = played(cases)
        found: Counter = Counter()
        for row in rows_of_view(PAGE_USES, tables, targets=TARGETS):
            found[(row["dev"], row["ino"], row["by_tid"])] += row["evicted"]
        assert +found == programs.account.by


def test_counts_that_other_tables_tell_are_null_without_them():
    _, tables = played([Random(1)] * 5)
    for missing, column in (("block", "disk_bytes"), ("off_cpu", "wait_ns")):
        some = {name: rows for name, rows in tables.items() if name != missing}
        rows = rows_of_view(READS, some, targets=TARGETS)
        assert rows
        assert {row[column] for row in rows} == {None}


def test_lost_and_hostile_events_leave_counts_that_add_up():
    for cases in batches(CASES_OF_A_TRACE)[::3]:
        numbers = cases[0]
        _, tables = played(cases, named=0.8)
        kept = [damaged(row, numbers) for row in tables["page_cache"] if numbers.random() < 0.9]
        loss = [{"stream": "ftrace", "cpu": 0, "from": None, "to": None, "count": 1}]
        rows = rows_of_view(READS, tables | {"page_cache": kept, "loss": loss}, targets=TARGETS)
        for row in rows:
            assert row["accessed"] >= row["missed"] >= 0
            assert row["accessed"] >= row["mapped"] >= 0
            assert row["read"] >= row["refaulted"] >= 0
            assert all(row[name] >= 0 for name in (*COUNTS, "disk_bytes", "wait_ns"))


def damaged(row: Row, numbers: Random) -> Row:
    """A row, rarely with a field that no kernel logs."""
    if numbers.random() > 0.02:
        return row
    name, value = numbers.choice(HOSTILE)
    return row | {name: value}


def test_an_empty_table_has_no_rows():
    assert rows_of_view(READS, {"page_cache": [], "processes": []}) == []
