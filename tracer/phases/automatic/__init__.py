"""Automatic marks: PyTorch made to mark its own phases in an untouched script.

`startup` is put on the PYTHONPATH of a command that is recorded; the `sitecustomize` in it waits
for `torch` to be imported and then starts this.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from .. import marks
from .cuda import SYNCHRONIZE_ENV
from .torch_marks import install

__all__ = ["STARTUP", "SYNCHRONIZE_ENV", "start"]

STARTUP = Path(__file__).with_name("startup")
"""The folder for PYTHONPATH."""


def start(torch: ModuleType) -> list[str]:
    """Have `torch` mark what it does from now on; returns what could not be marked, and why."""
    return install(torch) if marks.enabled() else []
