"""Notices to the user of a verb, from code that knows no terminal."""

from __future__ import annotations

from collections.abc import Callable


def _nobody(text: str) -> None:
    """Shows nothing: programs that use the package get no notices."""


_show: Callable[[str], None] = _nobody


def show_notices(show: Callable[[str], None] | None) -> None:
    """Has `show` called for each notice from now on; None: no notice is shown."""
    global _show
    _show = show or _nobody


def notice(text: str) -> None:
    """Shows a notice of one line, if anybody wants notices."""
    _show(text)
