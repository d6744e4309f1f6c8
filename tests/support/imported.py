"""Imports everything that a verb of `tracer` may need, without starting a thread.

The fork server of `tests.support.warm` imports this module once; each `tracer` that it forks then
starts in milliseconds instead of seconds.
"""

from __future__ import annotations

import importlib
import pkgutil

from numba.core.registry import cpu_target

import analysis
import probes
import tracer

_NOT_NEEDED = ("analysis.cluster", "tracer.phases.automatic.startup")
"""A cluster's scheduler is a process of its own; the start-up code runs in the traced job."""


def _import_all(package: object) -> None:
    prefix = f"{package.__name__}."
    for found in pkgutil.walk_packages(package.__path__, prefix):
        if not found.name.startswith(_NOT_NEEDED):
            importlib.import_module(found.name)


for _package in (probes, tracer, analysis):
    _import_all(_package)
# Numba registers its implementations when the first kernel is loaded, which takes half a second.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
