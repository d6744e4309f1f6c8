"""What a job runs on, so that host and container can be held against each other."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from workloads.errors import JobError

SOURCE = Path(__file__).parents[2]
"""Where our own code lies."""

TRAINING = "training"
DEPLOYMENT = "deployment"

PACKAGES = ("torch", "torchvision", "transformers", "numpy", "pillow", "waitress", "urllib3")
"""What the jobs are made of."""

_OURS = ("workloads", "tracer/phases")
_NOT_DEPLOYED = (
    *("workloads/train.py", "workloads/infer.py", "workloads/prepare.py", "workloads/launch.py"),
    *("workloads/verb.py", "workloads/sessions.py", "workloads/studies/"),
    "workloads/modes/",
    *("workloads/serving/load.py", "workloads/serving/endpoint.py", "workloads/serving/unix.py"),
    "workloads/serving/drive.py",
)
"""Training, studies, and the client: what the deployment image does without."""
_PACKAGES_NOT_DEPLOYED = ("urllib3",)


class Versions(TypedDict):
    """`packages`: by name, None where one is not installed. `source`: SHA-256 of our own code."""

    python: str
    packages: dict[str, str | None]
    source: str


def versions(kind: str = TRAINING) -> Versions:
    """The versions of this very process; of an image of this kind, as it would be made here."""
    lacking = _PACKAGES_NOT_DEPLOYED if kind == DEPLOYMENT else ()
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES if name not in lacking},
        "source": _digest(own_files(kind)),
    }


def own_files(kind: str = TRAINING) -> list[Path]:
    """The files of our own that are in an image of this kind and are here, in order."""
    lacking = _NOT_DEPLOYED if kind == DEPLOYMENT else ()
    package = SOURCE / "tracer/__init__.py"
    found = [path for folder in _OURS for path in (SOURCE / folder).rglob("*") if path.is_file()]
    return sorted(
        path
        for path in (package, *found)
        if "__pycache__" not in path.parts and not str(path.relative_to(SOURCE)).startswith(lacking)
    )


def _digest(files: list[Path]) -> str:
    """SHA-256 over the names and contents of files of our own."""
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCE)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def require_same(here: Versions, there: Versions, where: str) -> None:
    """Raise JobError where a job would not run on the same as here."""
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
            f"{where} is not what runs here: {'; '.join(differing)}",
            "make the image anew, or name none to have one made",
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
