"""Folders below a folder, of which others may make any number, one below the other."""

from __future__ import annotations

import os
from collections.abc import Iterator


def walk(top: str) -> Iterator[tuple[str, list[str]]]:
    """Each folder's path with the sorted names of what is no folder in it; follows no link.

    Folders come sorted, each before those in it. Those that are gone, or cannot be read, are passed
    over. Unlike `os.walk` it does not call itself for each level.
    """
    left = [top]
    while left:
        place = left.pop()
        folders: list[str] = []
        others: list[str] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        except OSError:
            continue
        yield place, sorted(others)
        left += [os.path.join(place, name) for name in sorted(folders, reverse=True)]  # noqa: PTH118 a million Paths cost
