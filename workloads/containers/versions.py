"""The versions that a job runs on, so that host and container can be compared."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from tracer.workloads.errors import JobError

SOURCE = Path(__file__).parents[3]
"""Folder of our package."""

TRAINING = "training"
DEPLOYMENT = "deployment"

PACKAGES = ("torch", "torchvision", "transformers", "numpy", "pillow", "waitress", "urllib3")
"""Packages that the jobs use."""

_OURS = ("tracer/workloads", "tracer/phases")
_FILES = (
    *("tracer/__init__.py", "tracer/free_space.py"),
    *("tracer/probes/__init__.py", "tracer/probes/errors.py", "tracer/probes/text.py"),
)
"""Folders and files of our own code that jobs import."""
_NOT_DEPLOYED = (
    *(
        "tracer/workloads/train.py",
        "tracer/workloads/infer.py",
        "tracer/workloads/prepare.py",
        "tracer/workloads/prepared_model.py",
        "tracer/workloads/job_data.py",
        "tracer/workloads/launch.py",
        "tracer/workloads/whole_job.py",
    ),
    *("tracer/workloads/verb.py", "tracer/workloads/sessions.py", "tracer/workloads/studies/"),
    "tracer/workloads/modes/",
    *(
        "tracer/workloads/serving/load.py",
        "tracer/workloads/serving/bounded.py",
        "tracer/workloads/serving/endpoint.py",
        "tracer/workloads/serving/unix.py",
    ),
    "tracer/workloads/serving/drive.py",
)
"""Files that the deployment image lacks: training, studies and the client."""
_PACKAGES_NOT_DEPLOYED = ("urllib3",)


class Versions(TypedDict):
    """Versions that a job runs on.

    `packages`: version by name, None if not installed. `source`: SHA-256 of our own code.
    """

    python: str
    packages: dict[str, str | None]
    source: str


def versions(kind: str = TRAINING) -> Versions:
    """Returns this process's versions, restricted to what an image of this kind contains."""
    lacking = _PACKAGES_NOT_DEPLOYED if kind == DEPLOYMENT else ()
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES if name not in lacking},
        "source": _digest(own_files(kind)),
    }


def own_files(kind: str = TRAINING) -> list[Path]:
    """Returns our own files on this machine that belong in an image of this kind, sorted."""
    lacking = _NOT_DEPLOYED if kind == DEPLOYMENT else ()
    files = [SOURCE / name for name in _FILES]
    found = [path for folder in _OURS for path in (SOURCE / folder).rglob("*") if path.is_file()]
    return sorted(
        path
        for path in (*files, *found)
        if "__pycache__" not in path.parts and not str(path.relative_to(SOURCE)).startswith(lacking)
    )


def _digest(files: list[Path]) -> str:
    """Returns the SHA-256 of the names and contents of our own files."""
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCE)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def require_same(here: Versions, there: Versions, where: str) -> None:
    """Raises JobError if a job would run on other versions there than here."""
    differing = [
        f"{name} {here['packages'][name]} here, {there['packages'].get(name)} there"
        for name in here["packages"]
        if here["packages"][name] != there["packages"].get(name)
    ]
    if here["python"] != there["python"]:
        differing.insert(0, f"Python {here['python']} here, {there['python']} there")
    if not differing and here["source"] != there["source"]:
        differing.append("our own code differs")
    if differing:
        raise JobError(
            f"{where} has other versions than this machine: {'; '.join(differing)}",
            "rebuild the image, or name no image to have one made",
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
