"""Runs when Python starts with this folder on PYTHONPATH, and waits until PyTorch is imported.

Any Python process may run this file, even an old version, and must not notice it. So the file does
little: it removes its folder from the path, runs the interpreter's own sitecustomize, and watches
the names of imported modules until it has seen the awaited ones.
"""

import os
import sys

_AWAITED = (
    "torch",
    "safetensors.torch",
    "lightning.fabric.utilities.cloud_io",
    "lightning_fabric.utilities.cloud_io",
)  # `start` of the package above handles each of these


def _wait_for_modules(phases):
    from importlib.machinery import ModuleSpec

    class Spec(ModuleSpec):
        """A module spec. The import system sets `_initializing` to False after the module ran."""

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
            if module is None:  # the import failed
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
    """Loads `phases` under a unique name, because the script may have its own `tracer` module."""
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
    except Exception as error:  # a failure of the marks must not stop the training
        failures = ["%s: %s" % (type(error).__name__, error)]
    if failures:
        _note("; ".join(failures))


def _note(failures):
    """Writes a note beside the marks that lists the missing marks."""
    import time

    name = "%d-%d.note" % (os.getpid(), time.monotonic_ns())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        note = os.open(os.path.join(os.environ["TRACER_MARKS"], name), flags, 0o600)
        os.write(note, failures[:1000].encode("utf-8", "replace"))
        os.close(note)
    except OSError:  # the recording is over
        pass


def _start():
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    if os.environ.get("TRACER_MARKS") and sys.version_info >= (3, 8):
        _wait_for_modules(os.path.dirname(os.path.dirname(here)))


_start()
# Import the sitecustomize that would have run without this one. Raises ImportError if none exists.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402, F401
