"""Imports everything that a verb of `tracer` may need, without starting a thread.

The fork server of `tests.support.warm` imports this module once; each `tracer` that it forks then
starts in milliseconds instead of seconds.
"""

from __future__ import annotations

import importlib
import pkgutil

from numba.core.registry import cpu_target

import tracer

_NOT_NEEDED = ("tracer.workloads", "tracer.phases.automatic.startup")
"""The jobs need PyTorch; the start-up code runs in the traced job."""


for _found in pkgutil.walk_packages(tracer.__path__, "tracer."):
    if not _found.name.startswith(_NOT_NEEDED):
        importlib.import_module(_found.name)
# Numba registers its implementations when the first kernel is loaded, which takes half a second.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
