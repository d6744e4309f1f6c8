"""A trial that tells if the running kernel maps whole folios of a file around a fault."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import tempfile
from pathlib import Path

_BYTES = 256 << 10
"""Size of the file: more than is mapped around a fault, and less than a huge page, which older
kernels map as a whole, too."""
_AROUND = 64 << 10
"""Bytes that are mapped around a fault (fault_around_pages of mm/memory.c)."""
_PRESENT = 1 << 63
"""Documentation/admin-guide/mm/pagemap.rst"""


def maps_folios(folder: Path) -> bool | None:
    """Returns whether a fault maps all of a large folio, as Linux 6.18 does (filemap_map_pages).

    A temporary file in `folder` is written at once, so that it gets a large folio, and one page of
    it is touched. A page more follows, since a folio that ends with its file is not mapped as a
    whole. Returns None if only the pages around are mapped: the kernel is older, or the file system
    has no large folios. Also returns None if the file cannot be made.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            if file.write(bytes(_BYTES)) < _BYTES or file.write(bytes(mmap.PAGESIZE)) == 0:
                return None
            with mmap.mmap(file.fileno(), _BYTES, mmap.MAP_PRIVATE) as mapped:
                mapped[0]
                found = _mapped_bytes(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
    except OSError:
        return None
    return True if found > _AROUND else None


def _mapped_bytes(address: int) -> int:
    """Returns how many bytes of a mapping at `address` the page tables have. Raises OSError."""
    pages = _BYTES // mmap.PAGESIZE
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        entries = os.pread(pagemap, 8 * pages, address // mmap.PAGESIZE * 8)
    finally:
        os.close(pagemap)
    present = (entry & _PRESENT for (entry,) in struct.iter_unpack("=Q", entries))
    return sum(map(bool, present)) * mmap.PAGESIZE
