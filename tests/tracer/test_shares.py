"""Shares for people: a rounded share is never that of all or of nothing."""

import pytest

from tracer.sizes import show_bound, show_part, show_share


@pytest.mark.parametrize(
    ("share", "digits", "said"),
    [
        (0.0, 1, "0.0%"),
        (0.0004, 1, "less than 0.1%"),
        (0.0005, 1, "0.1%"),
        (0.004, 0, "less than 1%"),
        (0.7657, 1, "76.6%"),
        (0.9994, 1, "99.9%"),
        (0.9996, 1, "more than 99.9%"),
        (0.99996, 2, "more than 99.99%"),
        (1.0, 1, "100.0%"),
        (-0.0004, 1, "below 0.1%, negative"),
        (-0.415, 1, "-41.5%"),
    ],
)
def test_a_share_of_nearly_all_or_nearly_nothing_says_so(share, digits, said):
    assert show_share(share, digits) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "at most 0.0%"),
        (0.0004, "less than 0.1%"),
        (0.5, "at most 50.0%"),
        (0.9996, "at most 100.0%"),
    ],
)
def test_an_upper_bound_may_be_all(share, said):
    assert show_bound(share) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (0, 0, "0 of 0 pages"),
        (0, 1707, "none of 1,707 pages"),
        (1, 1707, "1 of 1,707 pages (0.1%)"),
        (1, 17070, "1 of 17,070 pages (less than 0.1%)"),
        (17069, 17070, "17,069 of 17,070 pages (more than 99.9%)"),
        (1707, 1707, "all 1,707 pages"),
        (1, 1, "1 of 1 pages"),
    ],
)
def test_a_part_says_all_and_none_in_words(part, whole, said):
    assert show_part(part, whole, " pages") == said
