"""Runs when Python starts with this folder on PYTHONPATH: waits for PyTorch to be imported.

Any Python may come by here, an old one, too; and none may notice. So this does little: it takes
its folder off the path, lets the interpreter's own sitecustomize run, and looks at the names of
modules that are imported until it has seen those that it waits for.
"""

import os
import sys

_AWAITED = (
    "torch",
    "safetensors.torch",
    "lightning.fabric.utilities.cloud_io",
    "lightning_fabric.utilities.cloud_io",
)  # `start` of the package above knows what to do with each


def _wait_for_modules(phases):
    from importlib.machinery import ModuleSpec

    class Spec(ModuleSpec):
        """The import system says here that the module has been executed."""

        @property
        def _initializing(self):
            return self.__dict__.get("_initializing", False)

        @_initializing.setter
        def _initializing(self, value):
            self.__dict__["_initializing"] = value
            if value:
                return
            self.__class__ = ModuleSpec
            module = sys.modules.get(self.name)
            if module is None:  # it failed
                finder.awaited.add(self.name)
            else:
                _install(phases, module)

    class Finder:
        def __init__(self):
            self.awaited = set(_AWAITED)

        def find_spec(self, name, path=None, target=None):
            if name not in self.awaited:
                return None
            self.awaited.discard(name)
            for other in sys.meta_path:
                find = getattr(other, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is not None:
                    if type(spec) is ModuleSpec:
                        spec.__class__ = Spec
                    return spec
            self.awaited.add(name)
            return None

    finder = Finder()
    sys.meta_path.insert(0, finder)


def _install(phases, module):
    """Load `phases` under a name that nobody else has: the script may have a tracer of its own."""
    name = "_tracer_phases"
    try:
        from importlib import import_module, util

        if name not in sys.modules:
            spec = util.spec_from_file_location(
                name, os.path.join(phases, "__init__.py"), submodule_search_locations=[phases]
            )
            package = util.module_from_spec(spec)
            sys.modules[name] = package
            spec.loader.exec_module(package)
        failures = import_module(name + ".automatic").start(module)
    except Exception as error:  # whatever is wrong with the marks, the training goes on
        failures = ["%s: %s" % (type(error).__name__, error)]
    if failures:
        _note("; ".join(failures))


def _note(failures):
    """Leave word beside the marks that these are not all."""
    import time

    name = "%d-%d.note" % (os.getpid(), time.monotonic_ns())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        note = os.open(os.path.join(os.environ["TRACER_MARKS"], name), flags, 0o600)
        os.write(note, failures[:1000].encode("utf-8", "replace"))
        os.close(note)
    except OSError:  # nobody records any more
        pass


def _start():
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    if os.environ.get("TRACER_MARKS") and sys.version_info >= (3, 8):
        _wait_for_modules(os.path.dirname(os.path.dirname(here)))


_start()
# The one that would have run without us; where there is none, this raises what says so.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402, F401
