"""Parts of steps within other parts: equal times, parts that touch, and parts that overlap."""

import random

import numpy as np

from tests.support.traces import make_trace
from tracer.analysis.views.phases.nesting import directly_around
from tracer.analysis.views.waiting.steps import steps

PARTS = ("fetch", "forward", "backward", "optimizer", "checkpoint")
JOB = 7
STEPS, LENGTH = 60, 20

# Each nested part is compared with all parts of its step: slow, and plain.
BY_COMPARING_ALL = """
WITH part AS (
    SELECT *, coalesce(max("end") OVER (
        PARTITION BY id ORDER BY start, number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) >= "end", false) AS nested
    FROM step_parts
)
SELECT i.number, max(o.number) AS around FROM part i JOIN part o
    ON i.id = o.id AND i.nested
    AND o.start <= i.start AND i."end" <= o."end" AND o.number < i.number
GROUP BY i.id, i.number ORDER BY i.number
"""


def drawn(numbers):
    """Steps with up to 12 parts each, whose times are few, so that many are equal or touch."""
    for step in range(STEPS):
        begin = 1000 + step * LENGTH
        of = {"pid": JOB, "tid": JOB, "epoch": 0, "step": step}
        yield {**of, "name": "step", "start": begin, "end": begin + LENGTH}
        for _ in range(numbers.randrange(13)):
            start, end = sorted(numbers.choices(range(begin, begin + LENGTH, 2), k=2))
            name = numbers.choice(PARTS)
            gpu = {"gpu_ns": numbers.choice([None, 3])} if name in PARTS[1:4] else {}
            yield {**of, "name": name, "start": start, "end": end, **gpu}


def test_the_part_directly_around_each_part_is_that_of_comparing_all_parts(tmp_path):
    phases = sorted(drawn(random.Random(11)), key=lambda phase: phase["start"])
    with make_trace(tmp_path / "t", {"phases": phases}) as trace:
        steps(trace)
        found = trace.rows("SELECT number, around FROM nested_parts ORDER BY number")
        expected = trace.rows(BY_COMPARING_ALL)
    assert len(expected) > 100
    assert found == expected


def test_spans_of_other_lanes_and_spans_that_only_overlap_are_around_none():
    lane = np.array([0, 0, 0, 0, 1, 1, 1])
    end = np.array([9, 12, 12, 4, 9, 3, 5])
    assert directly_around(lane, end).tolist() == [-1, -1, 1, 2, -1, 4, 4]
    assert directly_around(lane[:0], end[:0]).tolist() == []
