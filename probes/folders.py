"""A walk through the folders below a folder. Others may nest any number of them."""

from __future__ import annotations

import os
from collections.abc import Iterator


def walk(top: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each folder's path and the sorted names of the entries in it that are not folders.

    Links are not followed. Folders come sorted, each before its subfolders. Folders that are gone
    or cannot be read are skipped. Unlike `os.walk`, the function does not recurse.
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
