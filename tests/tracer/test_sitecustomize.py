"""A script's own sitecustomize beside the one that makes PyTorch mark itself."""

import os
import subprocess
import sys

from tracer.phases import MARKS_ENV
from tracer.phases.automatic import STARTUP


def test_a_script_s_own_sitecustomize_runs_and_ours_is_not_seen(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.theirs = 23")
    look = (
        "import sys, sitecustomize; print(theirs, sitecustomize.__file__, sys.path[1:],"
        " [str(f) for f in sys.meta_path if 'Finder' in type(f).__name__ and 0])"
    )
    environment = {**os.environ, "PYTHONPATH": str(own)}
    ours = {**environment, "PYTHONPATH": f"{STARTUP}:{own}", MARKS_ENV: str(tmp_path)}
    bare, marked = (
        subprocess.run(
            [sys.executable, "-c", look], env=e, capture_output=True, text=True, check=True
        )
        for e in (environment, ours)
    )
    assert marked.stdout == bare.stdout
    assert marked.stdout.startswith("23 ")


def test_a_sitecustomize_that_fails_says_so_as_ever(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('theirs')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ours = {**environment, "PYTHONPATH": f"{STARTUP}:{tmp_path}", MARKS_ENV: str(tmp_path)}
    bare, marked = (
        subprocess.run([sys.executable, "-c", "print(1)"], env=e, capture_output=True, check=True)
        for e in (environment, ours)
    )
    assert (marked.stdout, marked.stderr) == (bare.stdout, bare.stderr)
