"""Without the packages of an extra, its verbs name the extra that brings them.

`make test-wheel` runs the same verbs where nothing but the wheel is installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FIXTURE = str(Path(__file__).parents[2] / "fixtures" / "lenet.trace")
URL = "https://127.0.0.1:1/x.trace"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("extra", "missing", "arguments", "status"),
    [
        ("workloads", "torch", ("study", "run", "quick"), 5),
        ("cluster", "distributed", ("report", FIXTURE, FIXTURE, "--scheduler", "local"), 5),
        ("remote", "fsspec", ("report", URL), 2),
        ("remote", "aiohttp", ("report", URL), 2),
        ("gpu", "pynvml", ("list",), 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_verb_without_its_extra_names_it(extra, missing, arguments, status, tmp_path):
    code = f"import sys; sys.modules[{missing!r}] = None; from tracer.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status
    assert f"pip install 'traintrace[{extra}]'" in " ".join((ran.stdout + ran.stderr).split())
    assert "Traceback" not in ran.stderr
    assert not list(tmp_path.iterdir())
