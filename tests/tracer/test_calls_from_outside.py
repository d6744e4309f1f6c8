"""Calls into PyTorch's engine as uprobes saw them: rows of `torch_calls` in, phases out."""

from __future__ import annotations

import pytest

from tests.support.phases import read_table
from tracer.probes.events.torch_calls import TABLE
from tracer.store.phases import write_phases
from tracer.store.tables import write_rows

NAMES = {
    "F": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "O": "Optimizer.step#SGD.step",
    "Z": "Optimizer.zero_grad#SGD.zero_grad",
}


@pytest.fixture
def phases_of(tmp_path):
    """The phases of calls, 10 ns apart: B and a record's letter begin one, b and `.` end one."""

    def read(text):
        calls = []
        for at, letter in enumerate(text.replace(" ", "")):
            event = {"B": "backward_begin", "b": "backward_end", ".": "record_end"}
            calls.append((10 * at, event.get(letter, "record_begin"), NAMES.get(letter), at))
        write_rows(TABLE, tmp_path, [row(*call) for call in calls])
        write_phases(tmp_path / "no marks", 0, None, tmp_path)
        return read_table(tmp_path)

    return read


def row(ts, event, name, number):
    known = {"ts": ts, "pid": 5, "tid": 5, "event": event, "name": name, "object": number}
    return [known.get(column.name, None if column.nullable else 0) for column in TABLE.columns]


def times(rows, name):
    return [(row["start"], row["end"]) for row in rows if row["name"] == name]


def test_a_loop_s_steps_are_seen(phases_of):
    rows = phases_of("F. Bb O. F. Bb O.")
    assert times(rows, "step") == [(0, 60), (60, 110)]
    assert times(rows, "forward") == [(10, 20), (70, 80)]
    assert times(rows, "backward") == [(20, 30), (80, 90)]


def test_an_optimizer_may_step_within_a_backward(phases_of):
    """Some do so from a hook of each parameter, to keep no gradients."""
    rows = phases_of("F. B O. O. b F. B O. O. b")
    assert times(rows, "backward") == [(20, 70), (100, 150)]
    assert times(rows, "step") == [(0, 80), (80, 150)]


def test_a_backward_that_an_exception_ended_is_over_at_the_next_fetch(phases_of):
    rows = phases_of("F. B F. Bb O. F. Bb O.")
    assert times(rows, "backward") == [(20, 30), (50, 60), (110, 120)]
    assert [(row["epoch"], row["step"]) for row in rows if row["name"] == "step"] == [
        (None, 0),
        (None, 1),
        (None, 2),
    ]


def test_a_backward_within_what_is_no_phase_is_passed_over(phases_of):
    rows = phases_of("Z B b . F. Bb O.")
    assert times(rows, "backward") == [(60, 70)]
