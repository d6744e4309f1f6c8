"""The error of everything that keeps a distribution from being made or tested."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


class CannotPackage(Exception):
    """A distribution that cannot be made or is wrong, with the reason."""


def ran(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """Runs a command and returns its output. Raises CannotPackage with the end of its errors."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-1500:]
        raise CannotPackage(f"{' '.join(words[:4])} ... failed: {said}")
    return done.stdout
