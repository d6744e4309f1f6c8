"""Where the symbols of a stripped file lie: a debug file, by build id or by name and checksum.

As gdb looks for them ("Debugging Information in Separate Files" of its manual).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from probes.symbols.elf_file import ElfImage
from probes.symbols.reading import UnreadableSymbols, read_at

DEBUG_ROOT = Path("/usr/lib/debug")
"""Where distributions install debug files."""

_MAX_LINK_BYTES = 4096
_MAX_CHECKED_BYTES = 1 << 32
_CHUNK = 1 << 22


@contextmanager
def open_debug_file(elf: ElfImage, root: Path) -> Iterator[ElfImage | None]:
    """The debug file of `elf`, open as long as the context is; None where there is none.

    By build id: `ROOT/.build-id/xx/yyyy.debug`, which must have that id itself. By the section
    `.gnu_debuglink`: beside the file, in `.debug/` beside it, and under ROOT at the file's own
    path; its checksum must be right. A file that was opened by descriptor has no place to look
    beside.
    """
    for path, checksum in _candidates(elf, root):
        try:
            if not path.is_file():
                continue
            debug = ElfImage(path)
        except OSError as error:
            elf.problem(f"its debug file cannot be looked for: {error}")
            continue
        except UnreadableSymbols as error:
            elf.problem(error.what)
            continue
        with debug:
            if _belongs(debug, elf, checksum):
                yield debug
                return
            elf.problem(f"{debug.shown} is the debug file of another build")
    yield None


def _candidates(elf: ElfImage, root: Path) -> Iterator[tuple[Path, int | None]]:
    build_id = elf.build_id
    if build_id is not None and len(build_id) > 2:
        yield root / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug", None
    link = _debug_link(elf)
    if link is not None and elf.folder is not None:
        name, checksum = link
        folder = elf.folder.absolute()
        yield folder / name, checksum
        yield folder / ".debug" / name, checksum
        yield root / folder.relative_to(folder.anchor) / name, checksum


def _debug_link(elf: ElfImage) -> tuple[str, int] | None:
    """File name and CRC-32 of the section `.gnu_debuglink`."""
    section = elf.section(".gnu_debuglink")
    if section is None:
        return None
    data = elf.read(section, 0, _MAX_LINK_BYTES)
    raw, end, _ = data.partition(b"\0")
    at = len(raw) + 4 & ~3
    name = raw.decode("utf-8", "surrogateescape")
    if not end or len(data) < at + 4 or not name or "/" in name or name in (".", ".."):
        return None
    return name, int.from_bytes(data[at : at + 4], "little" if elf.little_endian else "big")


def _belongs(debug: ElfImage, elf: ElfImage, checksum: int | None) -> bool:
    if checksum is None:
        return debug.build_id == elf.build_id
    if (debug.status.st_dev, debug.status.st_ino) == (elf.status.st_dev, elf.status.st_ino):
        return False
    if debug.status.st_size > _MAX_CHECKED_BYTES:
        return False
    value = 0
    for offset in range(0, debug.status.st_size, _CHUNK):
        value = zlib.crc32(read_at(debug.fd, offset, _CHUNK), value)
    return value == checksum
