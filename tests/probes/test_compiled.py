"""Compiled functions, called by Python and by one another, compiled now or before."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tracer.probes.compiled import read_only

SOURCE = """
from tracer.probes.compiled import compiled, compiled_lean


@compiled_lean
def twice(number):
    return 2 * number


@compiled
def sum_of_doubles(numbers):
    total = 0
    for number in numbers:
        total += twice(number)
    return total
"""


@pytest.fixture
def load(tmp_path):
    """Imports the functions anew at each call."""
    path = tmp_path / "loops.py"
    path.write_text(SOURCE)

    def run():
        spec = importlib.util.spec_from_file_location("loops", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return run


def test_python_and_compiled_functions_call_the_same_function(load):
    for hits in (0, 1):
        loops = load()
        assert loops.sum_of_doubles(np.arange(4)) == 12
        assert loops.twice(21) == 42
        assert sum(loops.twice.stats.cache_hits.values()) == hits
        assert sum(loops.sum_of_doubles.stats.cache_hits.values()) == hits
    kept = Path(loops.twice.stats.cache_path).glob("loops.*.nbi")
    assert {path.name.partition("-")[0] for path in kept} == {
        "loops.sum_of_doubles", "loops.twice", "loops.twice.within",
    }  # fmt: skip


def test_a_loop_over_read_only_arrays_is_compiled_once(load):
    loops = load()
    numbers = np.arange(4)
    assert loops.sum_of_doubles(read_only(numbers)) == 12
    numbers[:] = 1
    assert loops.sum_of_doubles(read_only(read_only(numbers))) == 8
    assert len(loops.sum_of_doubles.signatures) == 1
    with pytest.raises(ValueError, match="read-only"):
        read_only(numbers)[0] = 2
