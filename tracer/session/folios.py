"""Trials that tell if the running kernel maps whole folios of a file at a fault."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import tempfile
from pathlib import Path

from tracer.store.manifest_parts import Kernel

_BYTES = 256 << 10
"""Size of the file: more than is mapped around a fault, and less than a huge page, which older
kernels map as a whole, too."""
_AROUND = 64 << 10
"""Bytes that are mapped around a fault (fault_around_pages of mm/memory.c)."""
_PRESENT = 1 << 63
"""Documentation/admin-guide/mm/pagemap.rst"""


def folios_mapped(folder: Path) -> Kernel:
    """Returns which faults map all of a large folio: `maps_folios`, `maps_written_folios`.

    On Linux 6.18, the fault of a read does (filemap_map_pages), and so does that of a write to a
    shared mapping (finish_fault). A temporary file in `folder` is written at once, so that it gets
    a large folio, and one page of it is touched. A page more follows, since a folio that ends with
    its file is not mapped as a whole. A key is missing if fewer pages are mapped: the kernel is
    older, or the file system has no large folios. Both are missing if the file cannot be made.
    """
    found: Kernel = {}
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            if file.write(bytes(_BYTES)) < _BYTES or file.write(bytes(mmap.PAGESIZE)) == 0:
                return found
            if _most_mapped(file.fileno(), mmap.MAP_PRIVATE, writes=False) > _AROUND:
                found["maps_folios"] = True
            if _most_mapped(file.fileno(), mmap.MAP_SHARED, writes=True) > mmap.PAGESIZE:
                found["maps_written_folios"] = True
    except OSError:
        pass
    return found


def _most_mapped(fd: int, flags: int, writes: bool) -> int:
    """Returns how many bytes of a file are mapped if its first page is touched. Raises OSError.

    A folio that lies in two page tables is not mapped as a whole. So there are two mappings, one
    beside the other: at most one of them lies so.
    """
    with mmap.mmap(fd, _BYTES, flags) as one, mmap.mmap(fd, _BYTES, flags) as other:
        for mapped in (one, other):
            if writes:
                mapped[0] = 1
            else:
                mapped[0]
        return max(_mapped_bytes(one), _mapped_bytes(other))


def _mapped_bytes(mapped: mmap.mmap) -> int:
    """Returns how many bytes of a mapping the page tables have. Raises OSError."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    pages = _BYTES // mmap.PAGESIZE
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        entries = os.pread(pagemap, 8 * pages, address // mmap.PAGESIZE * 8)
    finally:
        os.close(pagemap)
    present = (entry & _PRESENT for (entry,) in struct.iter_unpack("=Q", entries))
    return sum(map(bool, present)) * mmap.PAGESIZE
