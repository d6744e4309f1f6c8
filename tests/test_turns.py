"""Turns of tests of the live machine: what must not meet never overlaps, in whichever process."""

import itertools
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

CONFTEST = """
import pytest
from tests.support.turns import turn_of

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
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
INI = """
[pytest]
markers =
    kernel
    quiet
    settings
"""
PROCESSES = 3


@pytest.fixture
def ran(tmp_path):
    """Runs the same file of tests in some processes at once; returns when each test ran."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(INI)
    for number in range(PROCESSES):
        text = FILE.replace("import pytest", "import pytest\npytestmark = pytest.mark.kernel", 1)
        (tmp_path / f"test_{number}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(PROCESSES), "--dist", "loadfile"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTEST_DEBUG_TEMPROOT": str(tmp_path),  # turns of this run, not of the one around it
    }
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert len(found) == 4 * PROCESSES
    return found


@pytest.mark.slow
def test_a_quiet_test_meets_none_and_settings_do_not_meet(ran):
    for one, other in itertools.combinations(ran, 2):
        apart = one["end"] <= other["begin"] or other["end"] <= one["begin"]
        marks = {one["mark"], other["mark"]}
        assert apart or not ("quiet" in marks or marks == {"settings"})
