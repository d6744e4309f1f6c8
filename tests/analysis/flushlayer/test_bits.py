"""Bits of words."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.analysis.flushlayer.policies.bits import bit, lowest, ones

words = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda place: 1 << place))


@settings(deadline=None)
@given(words)
def test_bits_that_are_set(word):
    assert ones(np.uint64(word)) == word.bit_count()
    assert lowest(np.uint64(word)) == ((word & -word).bit_length() - 1 if word else 64)


def test_the_bit_of_a_place():
    assert [int(bit(place)) for place in (0, 1, 63, 64, 129)] == [1, 2, 1 << 63, 1, 2]
