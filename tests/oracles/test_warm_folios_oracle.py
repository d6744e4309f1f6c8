"""`tracer predict --warm` takes folios, and read-ahead around faults, as naive caches do."""

import pytest

from tests.oracles.drawing import first_with, seeds
from tests.oracles.mapped_folios import FolioJobs
from tests.oracles.removing_caches import MODELS
from tests.oracles.two_lists import REMOVAL
from tests.oracles.warm_answers import (
    CLOCKS,
    ROOMY,
    TIGHT,
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
ONE_SEED = pytest.mark.parametrize("seed", seeds(1))


@ONE_SEED
@pytest.mark.parametrize(("library", "sharing"), [(None, "--shared"), ("some", "--apart")])
def test_pages_of_folios_stay_one_by_one(tmp_path, sharing, library, seed):
    """Without read-ahead, the kernel's model has no folio of several pages, either."""
    jobs = WarmJobs(seed, takes=0.08, library=library, folios=True)
    folder = recording(tmp_path / "t", jobs.tables, containers("ab"))
    warm = warm_pages(jobs.calls, jobs.came)
    answer = predicted(folder, sharing, "--warm")
    assert answer["staying_pages"] == len(warm)
    agree(answer, jobs, SHARING[sharing], warm)


def rows(jobs, event):
    return [row for row in jobs.tables["page_cache"] if row["event"] == event]


def test_drawn_folios_have_warm_pages_amid_and_lose_parts():
    jobs = WarmJobs(27, takes=0.08, folios=True)
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
    faulting = WarmJobs(22, takes=0.15, library="around")
    stay = warm_pages(faulting.calls, faulting.came)
    counts["faults"] = rows(faulting, "fault")
    counts["mapped"] = {page for file, page in stay if file == LIBRARY}
    assert {what: len(found) for what, found in counts.items() if len(found) < 3} == {}


@ONE_SEED
@pytest.mark.parametrize("sharing", SHARING)
def test_a_fault_reads_around_pages_that_stay(tmp_path, sharing, seed):
    jobs = WarmJobs(seed, takes=0.15, library="around")
    folder = recording(tmp_path / "t", jobs.tables, containers("ab"))
    warm = warm_pages(jobs.calls, jobs.came)
    answer = predicted(folder, sharing, "--warm", pages=ROOMY, ahead=8)
    assert answer["staying_pages"] == len(warm)
    agree(answer, jobs, SHARING[sharing], warm, ROOMY, 8)


@ONE_SEED
@pytest.mark.parametrize(
    ("library", "sharing", "takes"),
    [(None, "--apart", 0.08), ("around", "--shared", 0.08), ("around", "--apart", 0)],
)
def test_read_ahead_of_folios_passes_over_pages_that_stay(tmp_path, library, sharing, takes, seed):
    jobs = WarmJobs(seed, takes=takes, library=library, folios=True)
    folder = recording(tmp_path / "t", jobs.tables, containers("ab"))
    with_folios(predicted(folder, sharing, "--warm", pages=ROOMY, ahead=8), jobs, SHARING[sharing])


@ONE_SEED
@pytest.mark.parametrize("sharing", SHARING)
def test_the_rest_of_a_folio_is_mapped_beside_pages_that_stay(tmp_path, sharing, seed):
    """Folios are larger than a window around a fault, and parts of them are taken out."""
    jobs = first_with(lambda jobs: jobs.rest > 0, lambda n: FolioJobs(n, takes=0.1), seed)
    folder = recording(tmp_path / "t", jobs.tables, containers("ab"), kernel=jobs.kernel)
    warm = warm_pages(jobs.calls, jobs.came)
    answer = predicted(folder, sharing, "--warm", pages=TIGHT)
    assert answer["staying_pages"] == len(warm)
    agree(answer, jobs, SHARING[sharing], warm, TIGHT)


@ONE_SEED
@pytest.mark.parametrize(("whole", "written"), [(True, False), (False, True)])
def test_read_ahead_of_folios_that_are_mapped_as_a_whole(tmp_path, whole, written, seed):
    jobs = FolioJobs(seed, whole, written, takes=0.1)
    folder = recording(tmp_path / "t", jobs.tables, containers("ab"), kernel=jobs.kernel)
    with_folios(predicted(folder, "--apart", "--warm", pages=TIGHT, ahead=8), jobs, APART, TIGHT)


def with_folios(answer, jobs, below, pages=ROOMY):
    """Compares an answer with read-ahead and the oracle."""
    warm = warm_pages(jobs.calls, jobs.came)
    assert answer["staying_pages"] == len(warm)
    found = rows_of(answer)
    expected = expected_rows(jobs, below, warm, pages)
    wanted = "used", "recorded", *MODELS
    assert columns(found, *wanted) == columns(expected, *wanted)
    for number in pages:
        by_clock = [folio_reads(jobs.calls, number, below, warm, 8, clock) for clock in CLOCKS]
        for (room, *group), row in found.items():
            if room == number:
                assert row["clocks"] == [read[tuple(group)] for read in by_clock], (room, group)
