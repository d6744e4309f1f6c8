"""The installed package has one import name, which a user's folders cannot shadow."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FIXTURE = Path(__file__).parents[2] / "fixtures" / "lenet.trace"
OTHERS = ("analysis", "benchmarks", "probes", "tests", "workloads")


@pytest.fixture
def project(tmp_path):
    """A user's project whose packages have the names of our folders."""
    for name in OTHERS:
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(f"raise SystemExit('imported the user's {name}')\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "tracer", "report", FIXTURE, "--json"),
        ("-m", "tracer", "doctor"),
        ("-m", "tracer", "list"),
        ("-m", "tracer", "study", "list"),
        ("-m", "tracer.workloads", "list"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[1:3])),
)
def test_verbs_ignore_folders_with_the_names_of_ours(project, arguments):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_distribution_installs_one_package():
    names = {
        name
        for name, owners in metadata.packages_distributions().items()
        if "traintrace" in owners and name.isidentifier()
    }
    assert {name for name in names if not name.startswith("_")} == {"tracer"}
