"""Loops that numba compiles, kept compiled between runs where this user may write that down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile `function` when it is first called; it runs without the interpreter's lock."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:
        # Neither the package's folder nor the user's cache can be written to.
        return cast(F, numba.njit(nogil=True)(function))


def compiled_lean(function: F) -> F:
    """Compile a function that makes no arrays: numba then counts no references to those it gets.

    Small functions that hand a tuple of arrays to one another are several times as fast so.
    """
    options: dict[str, Any] = {"_nrt": False}
    try:
        return cast(F, numba.njit(cache=True, nogil=True, **options)(function))
    except (RuntimeError, KeyError):
        # No place to keep it, or a numba that has no such option.
        return compiled(function)
