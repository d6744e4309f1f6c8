"""The debug files of stripped files, found by build id, or by name and checksum.

The places are those of gdb ("Debugging Information in Separate Files" in its manual). Unlike gdb,
the search follows no link beside the file, because it could lead anywhere. The file named by
`.gnu_debugaltlink` is not searched for, because it holds debug information without symbols.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.symbols.elf_file import ElfImage

DEBUG_ROOT = Path("/usr/lib/debug")
"""The folder in which distributions install debug files."""

_MAX_LINK_BYTES = 4096


@dataclass(frozen=True)
class Wanted:
    """The debug file that a stripped file names.

    build_id        build id in hex digits, or None
    name, checksum  file name and CRC-32 from the section `.gnu_debuglink`, or None
    """

    build_id: str | None
    name: bytes | None
    checksum: int | None


@dataclass(frozen=True)
class Candidate:
    """A place where a debug file may lie.

    path      path of the file, or of a folder that may not be the system's
    below     path of the file below that folder; empty if `path` is the file's own
    checksum  checksum that the file must have; None: it must have the build id
    """

    path: Path
    below: bytes
    checksum: int | None


def wanted(elf: ElfImage) -> Wanted | None:
    """Returns the debug file that this file names; None if it names none."""
    build_id = elf.build_id
    name, checksum = _debug_link(elf) or (None, None)
    if build_id is not None and len(build_id) <= 2:
        build_id = None
    return Wanted(build_id, name, checksum) if build_id or name else None


def candidates(sought: Wanted, folder: Path, root: Path) -> Iterator[Candidate]:
    """Yields the places where the debug file of a file in `folder` may be, the likeliest first.

    With a build id: `ROOT/.build-id/xx/yyyy.debug`. With a name: beside the file, in `.debug/`
    beside it, and under ROOT at the path of `folder`.
    """
    if sought.build_id is not None:
        path = root / ".build-id" / sought.build_id[:2] / f"{sought.build_id[2:]}.debug"
        yield Candidate(path, b"", None)
    if sought.name is not None:
        folder = folder.absolute()
        yield Candidate(folder, sought.name, sought.checksum)
        yield Candidate(folder, b".debug/" + sought.name, sought.checksum)
        here = root / folder.relative_to(folder.anchor) / os.fsdecode(sought.name)
        yield Candidate(here, b"", sought.checksum)


def belongs(debug: ElfImage, elf: ElfImage, checksum: int | None) -> bool:
    """Returns whether `debug` is the debug file of `elf`. Raises UnreadableSymbols."""
    if checksum is None:
        return debug.build_id == elf.build_id
    if (debug.status.st_dev, debug.status.st_ino) == (elf.status.st_dev, elf.status.st_ino):
        return False
    value = 0
    for piece in debug.whole():
        value = zlib.crc32(piece, value)
    return value == checksum


def _debug_link(elf: ElfImage) -> tuple[bytes, int] | None:
    """Returns the file name and CRC-32 in the section `.gnu_debuglink`, or None."""
    section = elf.section(".gnu_debuglink")
    if section is None:
        return None
    data = elf.read(section, 0, _MAX_LINK_BYTES)
    name, end, _ = data.partition(b"\0")
    at = len(name) + 4 & ~3
    if not end or len(data) < at + 4 or not name or b"/" in name or name in (b".", b".."):
        return None
    return name, int.from_bytes(data[at : at + 4], "little" if elf.little_endian else "big")
