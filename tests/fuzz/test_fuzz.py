"""A few random inputs for each target, equal in every run; `make fuzz` tries many more."""

from __future__ import annotations

import pytest

from tests.fuzz.driver import fuzz
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target, every_target
from tests.fuzz.worker import tried
from tracer.probes.errors import BadTrace

pytestmark = pytest.mark.slow

_TARGETS = every_target()
_SEED = 23
_FEW = 10


def _marked(one: Target) -> object:
    marks = [pytest.mark.slow] if one.tries < _FEW else []
    return pytest.param(one, id=one.name, marks=marks)


@pytest.mark.parametrize("one", [_marked(one) for one in _TARGETS.values()])
def test_inputs_are_read_or_refused(one):
    report = fuzz(one, _SEED, one.tries)
    assert report.inputs == one.tries
    assert not report.findings, "\n".join(found.trace for found in report.findings)


def _tried_with(error, folder):
    def run(data, folder):
        if error is not None:
            raise error

    return tried(Target("one", "", run, list, mutated), b"", folder / "in", 5)


def test_an_input_that_is_read_is_no_trouble(tmp_path):
    assert _tried_with(None, tmp_path) == (None, None)


def test_a_tracer_error_refuses_an_input(tmp_path):
    refusal, trouble = _tried_with(BadTrace("it is damaged", "copy it again"), tmp_path)
    assert (refusal, trouble) == ("it is damaged; copy it again", None)


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), SystemExit(1), AssertionError()])
def test_any_other_exception_is_trouble(tmp_path, error):
    refusal, trouble = _tried_with(error, tmp_path)
    assert refusal is None
    assert (trouble.number, trouble.place.split()[0]) == (5, type(error).__name__)
    assert "in run" in trouble.trace


def test_an_input_is_equal_in_every_run():
    one = _TARGETS["manifest"]
    assert one.input(5, 7) == one.input(5, 7) != one.input(5, 8)
