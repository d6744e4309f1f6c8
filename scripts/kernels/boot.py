"""A guest from start to end: its program, the job that it gets, and the folder for its results."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.kernels import initramfs, machine
from scripts.kernels.debian import Kernel
from scripts.kernels.facts import JOB
from scripts.kernels.roots import PROJECT, root_of


def boot(
    kernel: Kernel,
    folder: Path,
    share: Path,
    program: str,
    job: Mapping[str, Any],
    disks: Mapping[str, Path | str],
    limit_s: float,
    modules: Sequence[str] = (),
    parameters: str = "",
    counted: bool = False,
) -> None:
    """Runs a Python module in a guest, which leaves its results in `share`.

    The module finds `job` there, with the folders of the kernel added. The other arguments are
    those of `initramfs.write` and `machine.run`.
    """
    shutil.rmtree(share, ignore_errors=True)
    share.mkdir(parents=True)
    root = root_of(kernel, folder)
    places = {
        "modules": str(kernel.modules),
        "sources": str(kernel.sources),
        "libraries": str(root.libraries) if root.libraries else None,
    }
    (share / JOB).write_text(json.dumps({**places, **job}))
    # Compiled here: a guest is slow, and keeps nothing.
    compiled = [sys.executable, "-m", "compileall", "-q", "tracer", "probes", "scripts"]
    subprocess.run(compiled, cwd=PROJECT, check=False)
    first = folder / "initramfs"
    command = [str(root.python), "-S", "-m", program]
    initramfs.write(first, kernel, root, command, PROJECT, modules)
    machine.run(kernel, first, disks, share, limit_s, parameters, counted)
