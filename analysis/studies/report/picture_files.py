"""Figures of a report as files in a folder beside it, for formats that cannot hold them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from tracer.analysis.page.pictures import pictures
from tracer.analysis.studies.papers.parts import parts
from tracer.analysis.studies.report.contents import Contents
from tracer.probes.errors import UsageError
from tracer.store.files import as_invoking_user, write_whole

Drawn = dict[str, list[str]]
"""The names of the picture files of each section, by the section's title."""

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


def folder_of(output: Path) -> Path:
    """Returns the folder of a report's pictures: `park2023` beside `park2023.md`."""
    return output.with_suffix("")


def check_folder(output: Path, force: bool) -> None:
    """Raises UsageError if the pictures of a report cannot be written beside it.

    An existing folder is used only with `force`, and only if all files in it are pictures of
    reports; they are replaced.
    """
    folder = folder_of(output)
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot use {folder}: {error.strerror}", _OTHER) from None
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{folder} is not a folder; figures are written there", _OTHER)
    names = _names_in(folder)
    if not all(map(_OURS.fullmatch, names)):
        raise UsageError(f"{folder} holds other files than figures of reports", _OTHER)
    if names and not force:
        raise UsageError(f"{folder} exists", "name another file, or give --force to replace it")


def write_pictures(found: Contents, output: Path) -> Drawn:
    """Draws the figures of a report and writes them beside `output`. Returns their names.

    Nothing is written if no figure can be drawn. Raises FeatureMissing without a Chromium, and
    OSError if a file cannot be written.
    """
    made = pictures([figure for section in found.sections for figure in section.figures])
    if not made:
        return {}
    left = iter(made)
    folder = folder_of(output)
    drawn: Drawn = {}
    written: set[str] = set()
    with as_invoking_user():
        folder.mkdir(mode=0o755, exist_ok=True)
        for section in found.sections:
            for _, name in zip(section.figures, _numbered(section.title, written), strict=False):
                picture = next(left)
                file = f"{name}.{picture.kind}"
                write_whole(folder / file, picture.data)
                written.add(name)
                drawn.setdefault(section.title, []).append(file)
        kept = {file for files in drawn.values() for file in files}
        for name in _names_in(folder):
            if name not in kept and _OURS.fullmatch(name):
                (folder / name).unlink()
    return drawn


def _numbered(title: str, taken: set[str]) -> Iterator[str]:
    """Yields names for the figures of a section: figure-3, figure-3-2, figure-3-3."""
    name = _slug(title)
    number = 1
    while True:
        one = name if number == 1 else f"{name}-{number}"
        if one not in taken:
            yield one
        number += 1


def _slug(title: str) -> str:
    head = title.partition(":")[0].lower()
    return _NOT_IN_NAMES.sub("-", head).strip("-")


def _names_in(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


_OURS = re.compile(
    rf"({'|'.join(sorted({re.escape(_slug(part.title)) for part in parts(None)}))})"
    r"(-\d{1,3})?\.(svg|png)"
)
_OTHER = "name another file with -o"
