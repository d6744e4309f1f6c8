"""Steps inferred beside the marks of the script."""

from types import SimpleNamespace

from tests.support.phases import read_phases, write_process
from tests.support.training_facts import B, F, facts, rows
from tracer.store.span import Span


def test_a_worker_s_fetches_have_the_numbers_that_the_script_marks(tmp_path):
    """Two folds of one epoch, which the script calls 3; it marks the first of their steps, too."""
    script = [
        Span(99, 7, 7, "epoch", 3, end=206),
        Span(111, 7, 7, "step", None, 8, 147),
        Span(207, 7, 7, "epoch", 3, end=290),
    ]
    worker = [
        Span(50, 9, 9, "worker", 1 << 20, 7, 51),
        *(
            Span(52 + 2 * n, 9, 9, F, iteration << 20, batch, 53 + 2 * n)
            for n, (iteration, batch) in enumerate([(1, 1), (1, 0), (2, 0), (2, 1)])
        ),
    ]
    write_process(tmp_path, script, facts("FCBO FCBO X L FCBO X"))
    write_process(tmp_path, [], worker)
    found = [row for row in read_phases(tmp_path) if row["pid"] == 9]
    assert [(row["epoch"], row["step"]) for row in found] == [
        *((3, None), (3, 8), (3, None)),
        (None, None),  # nobody used it
    ]


def test_steps_are_inferred_within_the_epochs_that_the_script_marks(tmp_path):
    script = [Span(99, 7, 7, "epoch", 5, end=210), Span(211, 7, 7, "epoch", 6, end=300)]
    worker = [Span(50, 9, 9, "worker", 1 << 20, 7, 51), Span(52, 9, 9, F, 1 << 20, 1, 53)]
    write_process(tmp_path, script, facts("FCBO FCBO X L FCBO X"))
    write_process(tmp_path, [], worker)
    found = [SimpleNamespace(**row) for row in read_phases(tmp_path)]
    for name in ("step", B):
        assert rows(found, name) == [(5, 0), (5, 1), (6, 2)]
    assert rows(found, F) == [(5, 1), (5, 0), (5, 1), (6, 2)]
    assert rows(found, "epoch") == [(5, None), (6, None)]
    assert rows(found, "train") == []


def test_a_phase_of_the_script_s_own_gives_the_numbers_that_it_has(tmp_path):
    script = [Span(99, 7, 7, "epoch of mine", 5, end=146), Span(147, 7, 7, "mine", None, 9, 200)]
    write_process(tmp_path, script, facts("FCBO FCBO X"))
    found = [SimpleNamespace(**row) for row in read_phases(tmp_path)]
    assert rows(found, "step") == [(5, 0), (0, 9)]
