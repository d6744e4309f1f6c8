"""`tracer doctor` looks for py-spy beside its own Python and on PATH."""

import json
import os
import subprocess
import sys

import pytest

MEND = "pip install 'traintrace[stacks]'"


@pytest.fixture
def check(tmp_path):
    """Runs doctor by a Python of its own folder, which may have a py-spy.

    Returns the finding on py-spy, and the status.
    """
    (tmp_path / "python").symlink_to(os.path.realpath(sys.executable))

    def run(script=None):
        if script is not None:
            (tmp_path / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / "py-spy").chmod(0o755)
        ran = subprocess.run(
            [tmp_path / "python", "-m", "tracer", "doctor", "--json"],
            env={"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stderr == ""
        [found] = [one for one in json.loads(ran.stdout)["checks"] if one["name"] == "py-spy"]
        return found | {"status": ran.returncode}

    return run


def test_py_spy_is_told_with_its_version(check, tmp_path):
    found = check("echo py-spy 0.4.0")
    assert found["ok"]
    assert found["found"] == f"{tmp_path / 'py-spy'} (py-spy 0.4.0)"
    assert "--stacks" in found["needed_for"]


def test_a_missing_py_spy_is_told_with_its_mend(check):
    found = check()
    assert not found["ok"]
    assert (found["found"], found["mend"]) == (
        "there is no py-spy command, which reads Python stacks", MEND,
    )  # fmt: skip


def test_a_py_spy_that_does_not_run_is_missing(check):
    found = check("exit 1")
    assert not found["ok"]
    assert "does not run" in found["found"]
    assert found["mend"] == MEND


def test_recordings_without_stacks_need_no_py_spy(check):
    without, there = check(), check("echo py-spy 0.4.0")
    assert (without["ok"], there["ok"]) == (False, True)
    assert without["status"] == there["status"]
