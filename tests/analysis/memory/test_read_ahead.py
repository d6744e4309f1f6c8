"""Windows of read-ahead, worked out by hand from the kernel's rules."""

import numpy as np
import pytest

from tests.support.page_runs import made
from tracer.analysis.memory.page_runs import BEFORE, FAULT, READ
from tracer.analysis.memory.two_lists import two_lists

PLENTY = 10**6


def windows(rows, size, **options):
    """Returns (row, pages read) of each run that made the disk read."""
    read = two_lists(made(rows, [size]), PLENTY, **options).read
    return [(int(row), int(read[row])) for row in np.flatnonzero(read)]


def pages(indices, kind=READ):
    return [(0, index, 1, kind) for index in indices]


def test_a_window_of_sequential_reads_doubles_up_to_the_limit():
    found = windows(pages(range(136)), 136, ra_pages=32, large_folios=False)
    # A window of 4, whose marker is page 1; then 8, 16 and 32 at the first page of each.
    assert found == [(0, 4), (1, 8), (4, 16), (12, 32), (28, 32), (60, 32), (92, 12)]


def test_a_small_window_grows_fourfold_if_the_limit_is_large():
    found = windows(pages(range(100)), 10_000, ra_pages=512, large_folios=False)
    assert found == [(0, 4), (1, 16), (4, 64), (20, 128), (84, 256)]


def test_windows_end_at_multiples_of_their_folios():
    # Orders grow by 2: the window of 16 from page 12 on would end at 28, and a folio has 16 pages.
    found = windows(pages(range(64)), 1000, ra_pages=32)
    assert found[:7] == [(0, 4), (1, 8), (4, 4), (12, 8), (16, 8), (24, 16), (32, 16)]


def test_a_request_larger_than_the_limit_is_read_as_one():
    assert windows([(0, 0, 100)], 1000, ra_pages=32, io_pages=320)[0] == (0, 100 + 100)
    assert windows([(0, 0, 100)], 1000, ra_pages=32, io_pages=0) == [(0, 32 * 5)]


def test_a_whole_file_is_read_once_and_no_further():
    for size in (1, 7, 25, 33, 50, 400):
        assert windows([(0, 0, size)], size) == [(0, size)]


def test_each_page_cached_before_counts_before_a_missing_one():
    """Four cached pages are before it, more than the one that the call still needs."""
    rows = [(0, 0, 4, BEFORE, 1), (0, 0, 1, READ, 2), (0, 1, 4, READ, 2)]
    assert windows(rows, 100, ra_pages=8) == [(2, 8)]


def test_a_random_read_reads_only_its_pages():
    assert windows([(0, 500, 3), (0, 900, 2), (0, 100, 1)], 1000) == [(0, 3), (1, 2), (2, 1)]


def test_a_random_read_after_cached_pages_goes_on_as_a_stream():
    # Two readers: the second comes to page 6, and finds six cached pages before it.
    rows = [(0, 1, 5, READ, 0), (0, 6, 1, READ, 1)]
    assert windows(rows, 1000) == [(0, 5), (1, 6)]
    # From the start of the file on, they count twice.
    rows = [(0, 0, 5, READ, 0), (0, 16, 1, READ, 1)]
    assert windows(rows, 1000, ra_pages=64, io_pages=64) == [(0, 16), (1, 33)]


def test_a_read_directly_after_the_last_one_is_sequential():
    assert windows([(0, 500, 1), (0, 501, 1)], 1000) == [(0, 1), (1, 4)]
    assert windows([(0, 500, 1), (0, 503, 1)], 1000) == [(0, 1), (1, 1)]


def test_a_marker_that_another_stream_has_left_starts_a_window():
    # The reader's window is far away when it comes to the marker, page 1: its cached pages 2 and 3
    # and the request make 4, which doubles to 8.
    rows = [(0, 0, 1), (0, 500, 1), (0, 501, 1), (0, 1, 1)]
    found = windows(rows, 1000, large_folios=False)
    assert found == [(0, 4), (1, 1), (2, 4), (3, 8)]


def test_readers_have_windows_of_their_own():
    rows = [(0, 0, 1, READ, 0), (0, 500, 1, READ, 1), (0, 1, 1, READ, 0), (0, 501, 1, READ, 1)]
    assert windows(rows, 1000, large_folios=False) == [(0, 4), (1, 1), (2, 8), (3, 4)]


def test_fadvise_random_reads_only_what_is_asked_for():
    random = np.array([True])
    runs = made([(0, index, 4) for index in range(0, 40, 4)], [1000], random=random)
    assert two_lists(runs, PLENTY).read.tolist() == [4] * 10
    runs = made([(0, 0, 700)], [1000], random=random)
    assert two_lists(runs, PLENTY).read.tolist() == [700]


def test_no_read_ahead_reads_page_by_page():
    runs = made([(0, 0, 40), *pages(range(40, 60)), (0, 70, 1, FAULT)], [1000])
    found = two_lists(runs, PLENTY, ra_pages=0)
    assert found.read.tolist() == found.missed.tolist() == [40] + [1] * 21


def test_a_fault_reads_around_and_maps_what_lies_near():
    # 32 pages around page 100, 84 .. 115; the marker is page 108.
    rows = pages([100, 84, 115, 108], FAULT)
    found = two_lists(made(rows, [1000]), PLENTY)
    assert found.missed.tolist() == [1, 0, 0, 0]
    assert found.read.tolist() == [32, 0, 0, 32]


@pytest.mark.parametrize(("page_kib", "around"), [(4, 15), (16, 4), (64, 1)])
def test_a_fault_maps_64_kib_around_or_its_page_alone(page_kib, around):
    # 32 pages around page 100, 84 .. 115; the marker is page 108, which is not mapped.
    options = {"ra_pages": 32, "page_bytes": page_kib << 10, "large_folios": False}
    found = two_lists(made([(0, 100, 1, FAULT)], [1000]), PLENTY, **options)
    assert (found.read.tolist(), found.unused.tolist()) == ([32], [32 - around])


@pytest.mark.parametrize(
    ("page_kib", "ra_pages", "at_once"), [(4, 32, 320), (16, 8, 80), (64, 2, 20)]
)
def test_a_device_reads_as_many_bytes_of_larger_pages(page_kib, ra_pages, at_once):
    options = {"page_bytes": page_kib << 10}
    for asked in (at_once, 3 * at_once):
        rows = [(0, 0, asked)]
        given = windows(rows, 10_000, ra_pages=ra_pages, io_pages=at_once, **options)
        assert windows(rows, 10_000, **options) == given
    assert windows(rows, 10_000, io_pages=2 * at_once, **options) != given


def test_faults_read_around_no_more_after_a_hundred_misses():
    # Each fault but the first maps 16 pages nearby and so counts as a hit, if these are fresh. Far
    # apart and at the end of files of one page, they are misses only.
    rows = [(0, 20 * n, 1, FAULT) for n in range(150)]
    found = two_lists(made(rows, [20 * 150]), PLENTY, ra_pages=1).read
    assert set(found.tolist()) == {1}


def test_a_read_never_leads_beyond_the_end_of_its_file():
    runs = made([(0, 0, 5), (1, 0, 9), (0, 4, 1, FAULT), (1, 8, 1, FAULT)], [5, 9])
    found = two_lists(runs, PLENTY, ra_pages=1000)
    assert found.read.tolist() == [5, 9, 0, 0]


@pytest.mark.parametrize("chunk", [1, 3, 8, 32, 100])
@pytest.mark.parametrize("ra_pages", [0, 1, 7, 32, 256])
@pytest.mark.parametrize("large_folios", [False, True])
def test_a_sequential_read_reads_each_page_once(chunk, ra_pages, large_folios):
    rows = [(0, at, min(chunk, 777 - at)) for at in range(0, 777, chunk)]
    found = two_lists(made(rows, [777]), PLENTY, ra_pages, large_folios=large_folios)
    assert found.read.sum() == 777
    assert found.unused.tolist() == [0]
