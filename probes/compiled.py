"""Loops that numba compiles. Compiled code is cached between runs if the cache is writable."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.core import event
from numpy.typing import NDArray

from tracer.probes.notice import notice
from tracer.probes.unimported import unimported

with unimported("scipy.linalg"):
    # Numba imports SciPy's BLAS before it loads the first loop, which takes a third of a second.
    # None of our loops multiplies matrices.
    import numba.np.arraymath

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=np.generic)

_FOR_PYTHON = {"nogil": True, "no_cfunc_wrapper": True}
_FOR_LOOPS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Numba's options for a function that Python calls, and for one that a compiled function calls.

A wrapper holds a copy of its function, so wrappers that nobody calls take most of the time.
"""


_QUICK_S = 1.0
"""Time of compiling that needs no notice."""
_COMPILING = "numba:compile"
_ONCE = "compiling loops, which can take a minute; later runs read them from a cache"
_ALWAYS = (
    "compiling loops, which can take a minute; a cache needs NUMBA_CACHE_DIR, a writable folder"
)


class Compiling(event.Listener):
    """Gives one notice when compiling takes longer than `quick_s`. It is not told of cached code.

    A loop is compiled with the loops that it calls, so it is told often while that goes on.
    """

    def __init__(self, quick_s: float) -> None:
        self.cached = True
        """False if compiled code is not kept."""
        self._left_s = quick_s
        self._within = 0
        self._told = False
        self._since = 0.0

    def on_start(self, _: Any) -> None:
        """Handles the begin of a compilation."""
        self._pass()
        self._within += 1

    def on_end(self, _: Any) -> None:
        """Handles the end of a compilation."""
        self._pass()
        self._within -= 1

    def _pass(self) -> None:
        now = time.monotonic()
        if self._within:
            self._left_s -= now - self._since
        self._since = now
        if self._left_s < 0 and not self._told:
            self._told = True
            notice(_ONCE if self.cached else _ALWAYS)


_COMPILATIONS = Compiling(_QUICK_S)
event.register(_COMPILING, _COMPILATIONS)  # type: ignore[no-untyped-call]


def compiled(function: F) -> F:
    """Compiles `function` at its first call; it runs without the interpreter's lock."""
    return _compiled(function, {})


def compiled_lean(function: F) -> F:
    """Compiles a function that makes no arrays, without reference counts for its arguments.

    Small functions that pass a tuple of arrays to one another are several times as fast this way.
    """
    return _compiled(function, {"_nrt": False})


def _compiled(function: F, options: dict[str, Any]) -> F:
    """Compiles `function` apart for Python and for compiled functions, whichever calls it.

    Compiled functions have it compiled once per argument type, not once per constant argument.
    Otherwise numba compiles the function, and all functions that it calls, again for each constant
    that a compiled function passes. LLVM still sees the constants where it inlines the function.
    """
    made = _made(function, options | _FOR_PYTHON)
    if hasattr(made, "get_call_template"):  # else compilation is disabled (NUMBA_DISABLE_JIT)
        within = cache(partial(_made, _named_apart(function), options | _FOR_LOOPS))
        made.get_call_template = lambda args, kws: within().get_call_template(
            [_without_value(one) for one in args],
            {name: _without_value(one) for name, one in kws.items()},
        )
        made.get_overload = lambda signature: within().get_overload(signature)
    return cast(F, made)


def _made(function: Any, options: dict[str, Any]) -> Any:
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache is writable.
        _COMPILATIONS.cached = False
        return numba.njit(**options)(function)


def _named_apart(function: Any) -> FunctionType:
    """Returns the function under another name, since numba's cache has one entry per name."""
    made = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__qualname__ = f"{function.__qualname__}.within"
    made.__module__ = function.__module__
    return made


def read_only(array: NDArray[T]) -> NDArray[T]:
    """Returns the array as one that cannot be written, for loops that only read it.

    Numba compiles a loop again for arrays that can be written, if others (Arrow's, pandas') cannot.
    """
    made = array.view()
    made.flags.writeable = False
    return made


def _without_value(given: Any) -> Any:
    return types.unliteral(given)  # type: ignore[no-untyped-call]
