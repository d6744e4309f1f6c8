"""The data sets are made without PyTorch, whose import takes longer than to make a small set."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("PIL", reason="pillow is not installed")

from tests.conftest import ROOT
from tracer.workloads import models
from tracer.workloads.data import catalogue

UNUSED = ("torch", "torchvision", "transformers", "pandas", "scipy", "sklearn", "numba")
PROGRAM = f"""
import sys
from tracer.workloads.cli import main
status = main()
print(*(name for name in {UNUSED} if name in sys.modules))
sys.exit(status)
"""
FIRST = {name: entry.datasets[0] for name, entry in models.CATALOGUE.items()}


def prepare(model: str, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["prepare", model, "--samples", "8", "--output", str(output), *options]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *command],
        cwd=output.parent, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip


@pytest.mark.parametrize("model", FIRST)
def test_data_is_prepared_without_torch(model, tmp_path):
    summary, imported = prepare(model, tmp_path / "out").stdout.splitlines()
    assert imported == ""
    assert json.loads(summary)["samples"] == 8
    assert any(path.is_file() for path in Path(json.loads(summary)["data"]).rglob("*"))


def test_the_papers_own_sets_are_all_prepared_above():
    assert set(FIRST.values()) == set(catalogue.CATALOGUE)


def test_a_model_with_fresh_weights_needs_torch(tmp_path):
    said = prepare("lenet", tmp_path / "out", "--checkpoint", str(tmp_path / "weights.pt")).stdout
    assert said.splitlines()[-1].split()[0] == "torch"
    assert (tmp_path / "weights.pt").is_file()
