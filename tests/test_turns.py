"""Turns of tests of the live machine: what must not meet never overlaps, in whichever process."""

import itertools
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.support.turns import LOWER_PRIORITY

CONFTEST = """
import pytest
from tests.support.turns import take_priority, turn_of

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    take_priority(item)
    with turn_of(item):
        return (yield)
"""
FILE = """
import json, time
from pathlib import Path
import pytest

def note(name, mark):
    begin = time.monotonic()
    time.sleep(0.05)
    place = Path(f"{name}-{mark}-{begin}.json")
    place.write_text(json.dumps({"mark": mark, "begin": begin, "end": time.monotonic()}))

def test_first(request): note(request.path.stem, "plain")

@pytest.mark.quiet
def test_alone(request): note(request.path.stem, "quiet")

@pytest.mark.settings
def test_changes(request): note(request.path.stem, "settings")

def test_later(request): note(request.path.stem, "plain")
"""
PRIORITIES = """
import os, subprocess, sys, pytest

OWN = {own}
SHOW = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"

def priority_of_a_child():
    return int(subprocess.check_output([sys.executable, "-c", SHOW]))

def test_own_input(): assert priority_of_a_child() == {lower}

@pytest.mark.kernel
def test_the_machine(): assert priority_of_a_child() == OWN

def test_another_input(): assert priority_of_a_child() == {lower}
"""
INI = """
[pytest]
markers =
    kernel
    quiet
    settings
"""
PROCESSES = 3


def run(folder, *options):
    """Runs the tests in a folder by another pytest, which must pass."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(INI)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTEST_DEBUG_TEMPROOT": str(folder),  # turns of this run, not of the one around it
    }
    command = [sys.executable, "-m", "pytest", "-q", *options]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def ran(tmp_path):
    """Runs the same file of tests in some processes at once; returns when each test ran."""
    for number in range(PROCESSES):
        text = FILE.replace("import pytest", "import pytest\npytestmark = pytest.mark.kernel", 1)
        (tmp_path / f"test_{number}.py").write_text(text)
    run(tmp_path, "-n", str(PROCESSES), "--dist", "loadfile")
    found = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert len(found) == 4 * PROCESSES
    return found


@pytest.mark.slow
def test_a_quiet_test_meets_none_and_settings_do_not_meet(ran):
    for one, other in itertools.combinations(ran, 2):
        apart = one["end"] <= other["begin"] or other["end"] <= one["begin"]
        marks = {one["mark"], other["mark"]}
        assert apart or not ("quiet" in marks or marks == {"settings"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise priorities")
def test_tests_of_the_machine_get_the_cpus_first(tmp_path):
    own = 3
    text = PRIORITIES.format(own=own, lower=LOWER_PRIORITY)
    (tmp_path / "test_priorities.py").write_text(text)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, own)
    try:
        assert "3 passed" in run(tmp_path)
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
