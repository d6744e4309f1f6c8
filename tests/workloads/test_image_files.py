"""The files that images hold are all that the jobs in them import."""

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        ("training", "tracer.workloads.train"),
        ("training", "tracer.workloads.infer"),
        ("training", "tracer.workloads.prepare"),
        ("training", "tracer.workloads.prepared_model"),
        ("training", "tracer.workloads.serving.server"),
        ("deployment", "tracer.workloads.cli"),
        ("deployment", "tracer.workloads.serving.server"),
    ],
)
def test_a_job_finds_its_modules_among_the_files_of_its_image(tmp_path, kind, module):
    from tracer.workloads.containers.versions import SOURCE, own_files

    for path in own_files(kind):
        copy = tmp_path / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    job = f"import {module}, tracer, tracer.phases; print(tracer.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", job],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip() == str(tmp_path / "tracer/__init__.py")
