"""Automatic marks: PyTorch made to mark its own phases in an untouched script.

`startup` is put on the PYTHONPATH of a command that is recorded; the `sitecustomize` in it waits
for `torch` to be imported and then starts this; likewise for modules of libraries that save files
in their own ways.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from .. import marks
from .cuda import SYNCHRONIZE_ENV
from .torch_marks import install, install_lightning, install_safetensors
from .weave import NotWoven

__all__ = ["STARTUP", "SYNCHRONIZE_ENV", "start"]

STARTUP = Path(__file__).with_name("startup")
"""The folder for PYTHONPATH."""


_OTHERS = {
    "safetensors.torch": install_safetensors,
    "lightning.fabric.utilities.cloud_io": install_lightning,
    "lightning_fabric.utilities.cloud_io": install_lightning,
}


def start(module: ModuleType) -> list[str]:
    """Have a module mark what it does from now on; returns what could not be marked, and why.

    It is one of those that `startup` waits for.
    """
    if not marks.enabled():
        return []
    install_it = _OTHERS.get(module.__name__)
    if install_it is None:
        return install(module)
    try:
        install_it(module)
    except (NotWoven, AttributeError) as error:
        return [f"{module.__name__}: {error}"]
    return []
