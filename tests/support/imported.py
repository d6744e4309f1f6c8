"""Imports everything that a verb of `tracer` may need, without starting a thread.

The fork server of `tests.support.warm` imports this module once; each `tracer` that it forks then
starts in milliseconds instead of seconds.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil

from numba.core.registry import CPUDispatcher, cpu_target

import tracer
from tracer.cli.main import find_verbs
from tracer.store.checked import checker
from tracer.store.manifest import Manifest
from tracer.store.maps import MapFacts
from tracer.store.samples import SampleFacts

_NOT_NEEDED = ("tracer.workloads", "tracer.phases.automatic.startup")
"""The jobs need PyTorch; the start-up code runs in the traced job."""
_LATE = ("docker", "typer.rich_utils")
"""Modules that verbs import where they need them."""
_COMPILED = ("tracer.probes", "tracer.store")
"""Packages whose compiled loops every recording runs."""
_CHECKED = (Manifest, MapFacts, SampleFacts)
"""Kinds of JSON that are read from every trace."""


def _load(loop: CPUDispatcher) -> None:
    """Loads what numba's cache has of a loop; an entry of another CPU is none."""
    known = loop._cache._cache_file._load_index()
    for key in known:
        if loop._cache._index_key(key[0], loop.targetctx.codegen()) == key:
            loop.compile(key[0])


_modules = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(tracer.__path__, "tracer.")
    if not found.name.startswith(_NOT_NEEDED)
]
for _name in _LATE:
    importlib.import_module(_name)
# Numba registers its implementations when the first kernel is loaded, which takes half a second.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
for _module in _modules:
    if _module.__name__.startswith(_COMPILED):
        for _loop in vars(_module).values():
            # Numba has no name of its own for this: another version may have another cache.
            with contextlib.suppress(AttributeError):
                if isinstance(_loop, CPUDispatcher):
                    _load(_loop)
for _kind in _CHECKED:
    checker(_kind)
find_verbs()
# All that is there now stays shared: the collectors of the forked processes leave it alone.
gc.collect()
gc.freeze()
