"""The last of the entries that cover ranges of sectors, compared with a look at each sector."""

from __future__ import annotations

import numpy as np
import pytest

from tracer.analysis.views.covering import last_cover, meets, stops

LAST = (1 << 64) - 1


def sectors(*values):
    return np.array(values, np.uint64)


def looked_up(begin, stop, before, first, end, value, nothing, once):
    """Returns the same as `last_cover`, sector by sector."""
    found = []
    for at in range(len(begin)):
        values = []
        for sector in range(begin[at], stop[at]):
            others = range(at + 1, len(begin))
            until = min((n for n in others if begin[n] <= sector < stop[n]), default=len(begin))
            covering = [
                n
                for n in range(len(first))
                if before[n] > at
                and first[n] <= sector < end[n]
                and (not once or before[n] <= until)
            ]
            values.append(value[covering[0]] if covering else nothing)
        found.append(max(values, default=nothing))
    return found


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("nothing", [-1, 1000])
def test_random_ranges_have_what_a_look_at_each_sector_finds(nothing, once):
    draw = np.random.default_rng(3)
    for _ in range(400):
        ranges, entries, span = draw.integers(0, 7), draw.integers(0, 12), draw.integers(2, 25)
        begin, first = draw.integers(0, span, ranges), draw.integers(0, span, entries)
        stop = begin + draw.integers(0, span, ranges)
        end = first + draw.integers(0, span, entries)
        before = np.sort(draw.integers(0, ranges + 1, entries))
        value = draw.integers(0, 100, entries)
        wanted = looked_up(begin, stop, before, first, end, value, nothing, once)
        unsigned = (array.astype(np.uint64) for array in (begin, stop, first, end))
        begin, stop, first, end = unsigned
        found = last_cover(begin, stop, before, first, end, value, nothing, once)
        assert found.tolist() == wanted


def test_without_ranges_or_without_entries_there_is_nothing():
    none, numbers = sectors(), np.zeros(0, np.int64)
    assert last_cover(none, none, numbers, none, none, numbers, -1).tolist() == []
    one = sectors(0), sectors(8)
    assert last_cover(*one, numbers, none, none, numbers, -1).tolist() == [-1]


@pytest.mark.parametrize("wide", [False, True])
def test_many_entries_that_each_cover_many_sectors_are_looked_up_in_few_steps(wide):
    count = 300_000  # of each: a look at each sector of each would take a hundred billion steps
    place, told = np.arange(count), np.arange(count, 2 * count)
    # The first one covers the last place alone, and the last one all of them.
    first, end = place[::-1].astype(np.uint64), np.full(count, count, np.uint64)
    begin, stop = place.astype(np.uint64), place.astype(np.uint64) + np.uint64(1)
    if wide:
        begin, stop = np.zeros(count, np.uint64), end
    found = last_cover(begin, stop, np.full(count, count), first, end, told, -1)
    assert np.array_equal(found, np.full(count, told[-1]) if wide else told[::-1])


def test_ranges_at_the_end_of_all_sectors_end_there():
    lengths = np.array([8, 8, 0, (1 << 63) - 1])
    assert stops(sectors(0, LAST - 7, 16, LAST - 9), lengths).tolist() == [8, LAST, 17, LAST]
    begin, stop = sectors(LAST - 7), sectors(LAST)
    whole = sectors(0), sectors(LAST)
    assert last_cover(begin, stop, np.array([1]), *whole, np.array([5]), -1).tolist() == [5]


def test_ranges_that_only_touch_others_do_not_meet_them():
    begins, ends = sectors(8, 32), sectors(16, 40)
    first, end = sectors(0, 0, 15, 16, 16, 40), sectors(8, 9, 16, 32, 33, LAST)
    assert meets(first, end, begins, ends).tolist() == [False, True, True, False, True, False]
