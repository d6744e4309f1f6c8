"""`tracer doctor` looks for py-spy beside its own Python and on PATH."""

import json
import os
import subprocess
import sys

import pytest

MEND = "pip install 'traintrace[stacks]'"


def check(folder, script=None):
    """Runs doctor by a Python of its own folder, which may have a py-spy.

    Returns the finding on py-spy, and the status.
    """
    (folder / "python").symlink_to(os.path.realpath(sys.executable))
    if script is not None:
        (folder / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "py-spy").chmod(0o755)
    ran = subprocess.run(
        [folder / "python", "-m", "tracer", "doctor", "--json"],
        env={"PATH": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    [found] = [one for one in json.loads(ran.stdout)["checks"] if one["name"] == "py-spy"]
    return found | {"status": ran.returncode, "folder": folder}


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """The finding with a py-spy."""
    return check(tmp_path_factory.mktemp("there"), "echo py-spy 0.4.0")


@pytest.fixture(scope="module")
def missing(tmp_path_factory):
    """The finding without one."""
    return check(tmp_path_factory.mktemp("missing"))


def test_py_spy_is_told_with_its_version(there):
    assert there["ok"]
    assert there["found"] == f"{there['folder'] / 'py-spy'} (py-spy 0.4.0)"
    assert "--stacks" in there["needed_for"]


def test_a_missing_py_spy_is_told_with_its_mend(missing):
    assert not missing["ok"]
    assert (missing["found"], missing["mend"]) == (
        "there is no py-spy command, which reads Python stacks", MEND,
    )  # fmt: skip


def test_a_py_spy_that_does_not_run_is_missing(tmp_path):
    found = check(tmp_path, "exit 1")
    assert not found["ok"]
    assert "does not run" in found["found"]
    assert found["mend"] == MEND


def test_recordings_without_stacks_need_no_py_spy(missing, there):
    assert (missing["ok"], there["ok"]) == (False, True)
    assert missing["status"] == there["status"]
