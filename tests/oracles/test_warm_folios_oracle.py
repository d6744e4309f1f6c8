"""`tracer predict --warm` takes folios, and read-ahead around faults, as naive caches do."""

import pytest

from tests.oracles.removing_caches import MODELS
from tests.oracles.two_lists import REMOVAL
from tests.oracles.warm_answers import (
    CLOCKS,
    ROOMY,
    agree,
    columns,
    containers,
    expected_rows,
    predicted,
    recording,
    rows_of,
)
from tests.oracles.warm_caches import APART, SHARED
from tests.oracles.warm_folios import folio_reads
from tests.oracles.warm_pages import LIBRARY, WarmJobs, warm_pages

pytestmark = pytest.mark.slow

SHARING = {"--shared": SHARED, "--apart": APART}
FOLIOS, FAULTS = 27, 22
"""Seeds."""


@pytest.mark.parametrize(("library", "sharing"), [(None, "--shared"), ("some", "--apart")])
def test_pages_of_folios_stay_one_by_one(tmp_path, sharing, library):
    """Without read-ahead, the kernel's model has no folio of several pages, either."""
    jobs = WarmJobs(FOLIOS, takes=0.08, library=library, folios=True)
    folder = recording(tmp_path / "t", jobs.tables, containers("ab"))
    warm = warm_pages(jobs.calls, jobs.came)
    answer = predicted(folder, sharing, "--warm")
    assert answer["staying_pages"] == len(warm)
    agree(answer, jobs, SHARING[sharing], warm)


def rows(jobs, event):
    return [row for row in jobs.tables["page_cache"] if row["event"] == event]


def test_drawn_folios_have_warm_pages_amid_and_lose_parts():
    jobs = WarmJobs(FOLIOS, takes=0.08, folios=True)
    warm = warm_pages(jobs.calls, jobs.came)
    added = [
        {((row["dev"], row["ino"]), row["index"] + n) for n in range(row["pages"])}
        for row in rows(jobs, "add")
    ]
    deleted = {((row["dev"], row["ino"]), row["index"]) for row in rows(jobs, "delete")}
    large = [folio for folio in added if len(folio) > 1]
    beside = {(file, page + step) for folio in large for file, page in folio for step in (-1, 1)}
    parts = [folio for folio in large if len(deleted & folio) > 1]
    gone = {(call.file, call.first) for call in jobs.calls if call.kind == REMOVAL}
    counts = {"large": large, "beside": beside & warm, "parts": parts, "removed": gone & warm}
    assert {what: len(found) for what, found in counts.items() if len(found) < 3} == {}


@pytest.mark.parametrize("sharing", SHARING)
def test_a_fault_reads_around_pages_that_stay(tmp_path, sharing):
    jobs = WarmJobs(FAULTS, takes=0.15, library="around")
    folder = recording(tmp_path / "t", jobs.tables, containers("ab"))
    warm = warm_pages(jobs.calls, jobs.came)
    assert len(rows(jobs, "fault")) > 5
    assert len({page for file, page in warm if file == LIBRARY}) > 5
    answer = predicted(folder, sharing, "--warm", pages=ROOMY, ahead=8)
    assert answer["staying_pages"] == len(warm)
    agree(answer, jobs, SHARING[sharing], warm, ROOMY, 8)


@pytest.mark.parametrize(("library", "sharing"), [(None, "--apart"), ("around", "--shared")])
def test_read_ahead_of_folios_passes_over_pages_that_stay(tmp_path, library, sharing):
    jobs, below = WarmJobs(FOLIOS, takes=0.08, library=library, folios=True), SHARING[sharing]
    folder = recording(tmp_path / "t", jobs.tables, containers("ab"))
    warm = warm_pages(jobs.calls, jobs.came)
    answer = predicted(folder, sharing, "--warm", pages=ROOMY, ahead=8)
    assert answer["staying_pages"] == len(warm)
    found = rows_of(answer)
    expected = expected_rows(jobs, below, warm, ROOMY)
    wanted = "used", "recorded", *MODELS
    assert columns(found, *wanted) == columns(expected, *wanted)
    for number in ROOMY:
        by_clock = [folio_reads(jobs.calls, number, below, warm, 8, clock) for clock in CLOCKS]
        for (room, *group), row in found.items():
            if room == number:
                assert row["clocks"] == [read[tuple(group)] for read in by_clock], (room, group)
