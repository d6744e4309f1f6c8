"""Places in the code of a library, at which uprobes make events."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """The place of an event: a function's entry, its returns, or calls of it."""

    symbol: str
    """The begin of the function's mangled name."""
    exact: bool = False
    """`symbol` is all of the name."""
    returns: bool = False
    called_near: str = ""
    """If given, only calls from the code around this function count."""
    optional: bool = False
    """The event is left out of a library that lacks the function."""
    arguments: tuple[tuple[str, str], ...] = ()
    """The arguments to fetch, as tracefs writes them, by machine: the ABI assigns the registers."""
