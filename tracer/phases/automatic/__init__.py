"""Automatic marks: makes PyTorch mark its own phases in an unmodified script.

The recorder puts `startup` on the PYTHONPATH of a recorded command. The `sitecustomize` in it
waits until `torch` is imported and then calls `start`. It does the same for modules of other
libraries that save files in their own way.
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
"""The folder to add to PYTHONPATH."""


_OTHERS = {
    "safetensors.torch": install_safetensors,
    "lightning.fabric.utilities.cloud_io": install_lightning,
    "lightning_fabric.utilities.cloud_io": install_lightning,
}


def start(module: ModuleType) -> list[str]:
    """Makes a module mark its phases from now on. Returns what could not be marked, and why.

    `module` is one of the modules that `startup` waits for.
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
