"""CI's second try of failed tests: only of the live machine, few, and a fault still fails."""

import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT

ONCE = """
from pathlib import Path
def test_once():
    ran = Path(__file__).with_suffix(".ran")
    before = ran.exists()
    ran.touch()
    assert before
"""
ALWAYS = "def test_always():\n    assert False\n"
MANY = (
    "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_many(n):\n    assert False\n"
)


@pytest.fixture
def second_try(tmp_path):
    """Runs pytest and then the script in a project of these files; returns what it said."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    shutil.copy(ROOT / "scripts/retest.py", tmp_path / "scripts")

    def run(files):
        for name, source in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(source)
        subprocess.run([sys.executable, "-m", "pytest", "-n", "0", "-q"], cwd=tmp_path, check=False)
        again = [sys.executable, "scripts/retest.py"]
        return subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("files", "status", "words"),
    [
        ({"tests/kernel/test_a.py": ONCE, "tests/test_b.py": "def test(): pass"}, 0, "alone."),
        ({"tests/kernel/test_a.py": ONCE, "tests/docker/test_b.py": ALWAYS}, 1, "failed twice"),
        ({"tests/kernel/test_a.py": ONCE, "tests/test_b.py": ONCE}, 1, "2 failed tests are not"),
        ({"tests/kernel/test_a.py": MANY}, 1, "6 failed tests are not"),
        ({"tests/kernel/test_a.py": "def test(): pass"}, 1, "could not be run"),
    ],
    ids=["noise", "a fault", "no test of the machine", "many", "none"],
)
def test_only_noise_of_the_machine_passes(second_try, files, status, words):
    ended = second_try(files)
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert words in ended.stdout + ended.stderr
    if status == 0:
        assert "tests/kernel/test_a.py::test_once" in ended.stdout
