"""Compiled functions, called by Python and by one another, compiled now or before."""

import importlib.util
import os
import pty
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numba.core import event

from tests.conftest import ROOT, tracer_command
from tracer.probes.compiled import Compiling, read_only
from tracer.probes.notice import show_notices

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


@pytest.fixture
def notices():
    """The notices that are shown."""
    shown = []
    show_notices(shown.append)
    yield shown
    show_notices(None)


def test_compiling_that_takes_longer_is_said_once_and_cached_code_is_not(load, notices):
    with event.install_listener("numba:compile", Compiling(quick_s=0.0)):
        assert load().sum_of_doubles(np.arange(4)) == 12
    (said,) = notices
    assert said.startswith("compiling loops") and "later runs read them from a cache" in said
    with event.install_listener("numba:compile", Compiling(quick_s=0.0)):
        assert load().sum_of_doubles(np.arange(4)) == 12
    assert len(notices) == 1


def test_compiling_that_is_quick_is_not_said(load, notices):
    with event.install_listener("numba:compile", Compiling(quick_s=1e9)):
        assert load().sum_of_doubles(np.arange(4)) == 12
    assert notices == []


def test_a_cache_that_cannot_be_written_is_named(load, notices):
    listener = Compiling(quick_s=0.0)
    listener.cached = False
    with event.install_listener("numba:compile", listener):
        assert load().sum_of_doubles(np.arange(4)) == 12
    assert len(notices) == 1 and "NUMBA_CACHE_DIR" in notices[0]


def shown_on_terminal(arguments, env):
    """Returns what a command prints on a terminal as its standard error."""
    ours, its = pty.openpty()
    with subprocess.Popen(arguments, env=env, stdout=subprocess.DEVNULL, stderr=its) as running:
        os.close(its)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:
            pass  # the command has ended
        os.close(ours)
    assert running.returncode == 0
    return shown.decode()


@pytest.mark.slow
def test_a_terminal_tells_of_the_first_run_after_an_install_only(tmp_path):
    """The first run compiles for many seconds."""
    command = tracer_command("simulate", ROOT / "fixtures" / "lenet.trace", "--json")
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    assert shown_on_terminal(command, env).count("tracer: compiling loops") == 1
    assert shown_on_terminal(command, env) == ""
    env["NUMBA_CACHE_DIR"] = str(tmp_path / "another")
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
