"""Errors of the system without the name of a file: the message says what could not be used."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, tracer_command

FIXTURE = ROOT / "fixtures" / "lenet.trace"


@pytest.mark.parametrize("unbuffered", ["1", ""])
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("report", "--help"),
        ("query", FIXTURE, "SELECT 23", "--csv"),
        ("simulate", FIXTURE, "--html", "-"),
    ],
    ids=lambda words: words[0],
)
def test_a_full_standard_output_is_named(words, unbuffered):
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            tracer_command(*words),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (ran.returncode, ran.stderr) == (
        1,
        "tracer: standard output: No space left on device; write it to another file or device\n",
    )


@pytest.mark.parametrize(
    "words",
    [("report", FIXTURE), ("doctor",), ("export", FIXTURE, "-o", "x")],
    ids=lambda words: words[0],
)
def test_a_deleted_current_folder_is_named(tmp_path, words):
    gone = tmp_path / "gone"
    gone.mkdir()
    # A shell stands in the folder when it removes it, as a user's does.
    ran = subprocess.run(
        ["sh", "-c", 'rmdir "$0" && exec "$@"', gone, *tracer_command(*words)],
        cwd=gone,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
    )
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "tracer: the current folder: No such file or directory; "
        "it was deleted: change to one that exists (cd)"
    )


@pytest.mark.parametrize(
    "words",
    [("record", "--container", "x"), ("workload", "run", "lenet", "--containers", "1")],
    ids=lambda words: words[0],
)
def test_without_a_docker_daemon_both_verbs_have_one_status(tracer, tmp_path, words):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    nowhere = f"unix://{tmp_path}/none.sock"
    ran = tracer(*words, status=5, env={**os.environ, "DOCKER_HOST": nowhere})
    assert "no Docker daemon answers at " in ran.err
    assert ran.err.count("\n") == 1


def test_a_place_that_takes_no_page_is_a_matter_of_permission(tracer):
    """Nobody makes files in sysfs, root neither."""
    ran = tracer("report", FIXTURE, "--html", "/sys/never", status=3)
    assert ran.err.startswith("tracer: cannot write /sys/never: ")
    assert ran.err.count("\n") == 1
