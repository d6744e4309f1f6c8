"""Loops that numba compiles. Compiled code is cached between runs if the cache is writable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import types

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compiles `function` at its first call; it runs without the interpreter's lock."""
    try:
        return cast(F, _for_any_value(numba.njit(cache=True, nogil=True)(function)))
    except RuntimeError:
        # Neither the package's folder nor the user's cache is writable.
        return cast(F, _for_any_value(numba.njit(nogil=True)(function)))


def compiled_lean(function: F) -> F:
    """Compiles a function that makes no arrays, without reference counts for its arguments.

    Small functions that pass a tuple of arrays to one another are several times as fast this way.
    """
    options: dict[str, Any] = {"_nrt": False}
    try:
        return cast(F, _for_any_value(numba.njit(cache=True, nogil=True, **options)(function)))
    except (RuntimeError, KeyError):
        # No cache is writable, or this numba does not have the option.
        return compiled(function)


def _for_any_value(made: Any) -> Any:
    """Makes numba compile a function once per argument type, not once per constant argument.

    Otherwise numba compiles the function, and all functions that it calls, again for each constant
    that a compiled function passes. LLVM still sees the constants where it inlines the function.
    """
    template = getattr(made, "get_call_template", None)
    if template is not None:  # None: compilation is disabled (NUMBA_DISABLE_JIT)
        made.get_call_template = lambda args, kws: template(
            [_without_value(one) for one in args],
            {name: _without_value(one) for name, one in kws.items()},
        )
    return made


def _without_value(given: Any) -> Any:
    return types.unliteral(given)  # type: ignore[no-untyped-call]
