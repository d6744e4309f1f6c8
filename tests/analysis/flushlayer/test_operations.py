"""The operations of each kind of buffer."""

import numpy as np
import pytest

from tracer.analysis.flushlayer.policies.operations import (
    BUFFERS,
    LOOK,
    PAST,
    PAST_PART,
    READ,
    WRITE,
    operations,
)
from tracer.probes.errors import UsageError

IS_WRITE = np.array([True, True, False, False])
WAITED = np.array([True, False, True, False])


@pytest.mark.parametrize(
    ("buffer", "asked"),
    [
        ("write-only", [WRITE, WRITE, LOOK, LOOK]),
        ("read-write", [WRITE, WRITE, READ, READ]),
        ("sync-only", [WRITE, PAST, LOOK, LOOK]),
    ],
)
def test_a_buffer_takes_what_it_is_for(buffer, asked):
    made = operations(buffer, IS_WRITE, WAITED)
    assert made.tolist() == asked
    assert made.dtype == np.uint8


def test_a_write_past_the_layer_may_leave_a_part_of_its_page():
    parts = np.array([True, True, True, False])
    assert operations("sync-only", IS_WRITE, WAITED, parts).tolist() == [
        WRITE, PAST_PART, LOOK, LOOK,
    ]  # fmt: skip
    assert operations("write-only", IS_WRITE, WAITED, parts).tolist() == [WRITE, WRITE, LOOK, LOOK]


def test_an_unknown_buffer_names_those_there_are():
    with pytest.raises(UsageError, match=f"known: {', '.join(BUFFERS)}"):
        operations("read-only", IS_WRITE, WAITED)
