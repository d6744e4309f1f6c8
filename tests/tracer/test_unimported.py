"""Packages that libraries import if they are installed, and that a recording does not need."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tracer.probes.unimported import unimported

WHICH = "print([name for name in ('pandas', 'scipy.linalg') if name in sys.modules])"
RECORDS = f"""
import sys
from tracer.cli.main import app
try:
    app(["record", "--quiet", "--backend", "none", "-o", "x.trace", "--", "true"])
finally:
    {WHICH}
    import pandas, scipy.linalg
    {WHICH}
"""
LOOPS = f"""
import sys
import numpy as np
from tracer.probes.rows.columns import encoded
from tracer.probes.compiled import compiled
@compiled
def total(numbers): return numbers.sum()
assert total(np.arange(5)) == 10
{WHICH}
"""


@pytest.mark.parametrize(
    ("source", "imported"),
    [(RECORDS, ["[]", "['pandas', 'scipy.linalg']"]), (LOOPS, ["[]"])],
    ids=["a recording", "a loop"],
)
def test_nothing_is_imported_that_is_not_used(source, imported, tmp_path):
    pytest.importorskip("scipy.linalg", reason="SciPy is not installed")
    (tmp_path / "program.py").write_text(source)
    command = [sys.executable, tmp_path / "program.py"]
    said = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert said.stdout.splitlines() == imported, said.stderr


def test_only_the_named_module_is_absent_and_only_in_the_block(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("one_of_ours", "another_of_ours"):
        (tmp_path / f"{name}.py").touch()
    with unimported("one_of_ours"):
        import another_of_ours  # noqa: F401

        with pytest.raises(ModuleNotFoundError):
            import one_of_ours
    import one_of_ours  # noqa: F401
