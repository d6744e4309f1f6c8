"""The format of block_rq_insert as Linux 6.18 has it, and raw data in it, made by hand."""

from __future__ import annotations

import struct

from tests.support.pages import format_text

NUMBER = 2105
TEXT = format_text(
    "block_rq_insert",
    NUMBER,
    "dev_t dev 8 4 0\nsector_t sector 16 8 0\nunsigned int nr_sector 24 4 0\n"
    "unsigned int bytes 28 4 0\nunsigned short ioprio 32 2 0\nchar rwbs[10] 34 10 0\n"
    "char comm[16] 44 16 0\n__data_loc char[] cmd 60 4 0",
)


def raw(major: int, minor: int, rwbs: bytes) -> bytes:
    """A request of 8 sectors at sector 16."""
    head = struct.pack("<HBBiI4xQIIH", NUMBER, 0, 0, 100, major << 20 | minor, 16, 8, 4096, 0)
    return head + struct.pack("<10s16sHH4x", rwbs, b"dd", 64, 0)
