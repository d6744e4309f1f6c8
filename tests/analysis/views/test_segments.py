"""The table of segments, which is filled piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.traces import make_trace
from tracer.analysis.views.phases import segments
from tracer.analysis.views.phases.segments import make_segments, segment_cuts

NEVER = 10**9
"""End of the recording."""

PHASES = [
    {"start": 0, "end": 100, "pid": 7, "tid": 7, "name": "train"},
    {"start": 10, "end": 40, "pid": 7, "tid": 7, "name": "step", "epoch": 0, "step": 3},
    {"start": 20, "end": 30, "pid": 7, "tid": 7, "name": "forward", "epoch": 0, "step": 3},
    {"start": 50, "end": None, "pid": 7, "tid": 8, "name": "fetch", "epoch": 1},
]

SEGMENTS = [
    (0, 7, 0, 10, "train", "train", None, None),
    (1, 7, 10, 10, "step", "train", 0, 3),
    (2, 7, 20, 10, "forward", "train", 0, 3),
    (3, 7, 30, 10, "step", "train", 0, 3),
    (4, 7, 40, 60, "train", "train", None, None),
    (5, 7, 100, 0, None, None, None, None),
    (6, 8, 50, NEVER - 50, "fetch", None, 1, None),
]

QUERY = """
SELECT segment, l.tid, g.ts, g.length, n.name, s.name, g.epoch, g.step
FROM phase_segments g JOIN phase_lanes l USING (lane)
LEFT JOIN phase_names n ON g.name = n.code LEFT JOIN phase_names s ON g.stage = s.code
ORDER BY segment
"""


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_pieces_of_any_size_give_the_same_table(tmp_path, monkeypatch, most):
    monkeypatch.setattr(segments, "_MOST", most)
    with make_trace(tmp_path / "t", {"phases": PHASES}) as trace:
        make_segments(trace)
        assert trace.rows(QUERY) == SEGMENTS


def test_a_trace_without_phases_has_no_segments(tmp_path):
    with make_trace(tmp_path / "t", {"syscalls": []}) as trace:
        make_segments(trace)
        assert trace.rows(QUERY) == []


def test_segments_are_made_anew_after_the_trace_was_closed(tmp_path):
    with make_trace(tmp_path / "t", {"phases": PHASES}) as trace:
        found = []
        for _ in range(2):
            cuts = segment_cuts(trace)
            assert trace.rows(QUERY) == SEGMENTS
            found.append(cuts.last(np.array([0, 0, 1]), np.array([9, 25, 60])).tolist())
            trace.close()
    assert found == [[0, 2, 6], [0, 2, 6]]
