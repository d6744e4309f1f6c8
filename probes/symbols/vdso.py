"""The code that the kernel maps into every process, `[vdso]`, read from this process's memory."""

from __future__ import annotations

import os
from pathlib import Path

from tracer.probes.proc import read_maps
from tracer.probes.symbols.elf import ElfFile, open_elf
from tracer.probes.symbols.reading import UnreadableSymbols

_MAX_BYTES = 1 << 20


def vdso_image() -> bytes | None:
    """Returns the whole mapping; None if this process has none. Raises UnreadableSymbols.

    A 64-bit process and a 32-bit process have different ones; this is the one of this process.
    """
    try:
        for mapped in read_maps():
            if mapped.path == b"[vdso]":
                with Path("/proc/self/mem").open("rb", buffering=0) as memory:
                    size = min(mapped.end - mapped.start, _MAX_BYTES)
                    return os.pread(memory.fileno(), size, mapped.start)
    except OSError as error:
        raise UnreadableSymbols(f"the vdso cannot be read: {error}") from error
    return None


def open_vdso() -> ElfFile | None:
    """Opens the vdso as an ELF file; an offset into its mapping is an offset into the file.

    Returns None if there is no vdso. Raises UnreadableSymbols if it cannot be read.
    """
    image = vdso_image()
    if image is None:
        return None
    fd = os.memfd_create("vdso", os.MFD_CLOEXEC)
    try:
        os.write(fd, image)
        return open_elf(fd, "the vdso")
    finally:
        os.close(fd)
