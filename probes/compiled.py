"""Loops that numba compiles, kept compiled between runs where this user may write that down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import types

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile `function` when it is first called; it runs without the interpreter's lock."""
    try:
        return cast(F, _for_any_value(numba.njit(cache=True, nogil=True)(function)))
    except RuntimeError:
        # Neither the package's folder nor the user's cache can be written to.
        return cast(F, _for_any_value(numba.njit(nogil=True)(function)))


def compiled_lean(function: F) -> F:
    """Compile a function that makes no arrays: numba then counts no references to those it gets.

    Small functions that hand a tuple of arrays to one another are several times as fast so.
    """
    options: dict[str, Any] = {"_nrt": False}
    try:
        return cast(F, _for_any_value(numba.njit(cache=True, nogil=True, **options)(function)))
    except (RuntimeError, KeyError):
        # No place to keep it, or a numba that has no such option.
        return compiled(function)


def _for_any_value(made: Any) -> Any:
    """Compile a function once for all constants of a type that compiled functions call it with.

    Otherwise numba compiles it, and all that it calls, for each constant again. LLVM still knows
    the constants where it puts a function into the place of its call.
    """
    template = getattr(made, "get_call_template", None)
    if template is not None:  # else numba is told to compile nothing (NUMBA_DISABLE_JIT)
        made.get_call_template = lambda args, kws: template(
            [_without_value(one) for one in args],
            {name: _without_value(one) for name, one in kws.items()},
        )
    return made


def _without_value(given: Any) -> Any:
    return types.unliteral(given)  # type: ignore[no-untyped-call]
