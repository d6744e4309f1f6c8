"""Marks that mean harm: what a process may leave behind costs what it is long, no more."""

import numpy as np
import pytest

from tests.support.budget import run_within
from tests.support.phases import read_phases
from tracer.phases.format import ABSENT, AUTOMATIC, BEGIN, COMMITTED, END
from tracer.store.marks import _RECORD

pytestmark = pytest.mark.slow

MANY = 120_000
"""Records, in 7.7 MB. What costs their square takes minutes."""
SECONDS = 10
BYTES = 512 << 20


def records(names, kinds, **columns):
    made = np.zeros(MANY, _RECORD)
    made["ts"] = np.arange(MANY)
    made["pid"] = made["tid"] = 7
    made["epoch"] = made["step"] = ABSENT
    made["committed"] = COMMITTED
    made["name"] = np.resize(np.array(names), MANY)
    made["kind"] = np.resize(np.array(kinds, np.uint8), MANY)
    for column, values in columns.items():
        made[column] = values
    return made


A_THREAD_EACH = records([b"step"], [BEGIN], tid=np.arange(1, MANY + 1))
A_PROCESS_EACH = records([b"backward"], [BEGIN | AUTOMATIC], pid=np.arange(1, MANY + 1))
NEVER_ENDED = records([b"step", b"forward"], [BEGIN, BEGIN | AUTOMATIC], epoch=3)
AN_EPOCH_EACH = records(
    [b"data_load", b"data_load", b"fetch", b"fetch", b"backward", b"backward"],
    [BEGIN | AUTOMATIC, END | AUTOMATIC] * 3,
    epoch=np.arange(MANY) // 6,
)
ENDS_OF_NOTHING = records([b"x"], [END])
ENDS_OF_NOTHING["kind"][:1000] = BEGIN
ENDS_OF_NOTHING["name"][:1000] = b"step"


@pytest.mark.parametrize(
    ("marks", "rows"),
    [
        (A_THREAD_EACH, MANY),
        (A_PROCESS_EACH, 3),
        (NEVER_ENDED, MANY + 1),
        (AN_EPOCH_EACH, 5 * MANY // 6 + 1),
        (ENDS_OF_NOTHING, 1000),
    ],
    ids=["thread each", "process each", "never ended", "epoch each", "ends of nothing"],
)
def test_many_marks_cost_no_more_than_so_many_times_one(tmp_path, marks, rows):
    marks.tofile(tmp_path / "7-1-0.marks")
    assert run_within(BYTES, count, tmp_path, cpu_s=SECONDS) == rows


def count(folder):
    return len(read_phases(folder))


def test_the_innermost_open_one_of_a_name_is_ended(tmp_path):
    names = [b"a", b"b", b"a", b"x", b"a", b"a", b"a"]
    made = records(names, [BEGIN, BEGIN, BEGIN, END, END, END, END])[: len(names)]
    made.tofile(tmp_path / "7-1-0.marks")
    found = read_phases(tmp_path)
    assert [(row["name"], row["start"], row["end"]) for row in found] == [
        ("a", 0, 5),
        ("b", 1, 5),
        ("a", 2, 4),
    ]


def test_the_outermost_of_a_thousand_open_marks_are_given_up(tmp_path):
    depth = 1003
    made = records([b"a"], [BEGIN])[: 2 * depth]
    made["kind"][depth:] = END
    made.tofile(tmp_path / "7-1-0.marks")
    ends = [row["end"] for row in read_phases(tmp_path)]
    assert ends == [None] * 3 + list(range(2 * depth - 4, depth - 1, -1))
