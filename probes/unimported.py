"""Packages that a library imports wherever they are installed, and that we do not need from it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Absent(MetaPathFinder):
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Raises ModuleNotFoundError for the package; leaves all others to the next finder."""
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)


@contextmanager
def unimported(name: str) -> Iterator[None]:
    """Makes a first import of a module fail in the block, as if it were not installed."""
    absent = _Absent(name)
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)
