"""Pages of bbolt's databases, for tests of their reader."""

from __future__ import annotations

import struct

SIZE = 512
BRANCH, LEAF = 1, 2


def fnv(data):
    """Returns the FNV-1a hash of 64 bits."""
    total = 0xCBF29CE484222325
    for byte in data:
        total = (total ^ byte) * 0x100000001B3 % (1 << 64)
    return total


def meta(number, root, transaction):
    parts = struct.pack("<IIIIQQQQQ", 0xED0CDAED, 2, SIZE, 0, root, 0, 0, 0, transaction)
    page = struct.pack("<QHHI", number, 4, 0, 0) + parts + struct.pack("<Q", fnv(parts))
    return page.ljust(SIZE, b"\0")


def leaf(items, number=0):
    """Returns a page of values and buckets. A bucket is (page of its root, its only page)."""
    head, data = b"", b""
    for n, (key, value) in enumerate(items):
        bucket = isinstance(value, tuple)
        stored = struct.pack("<QQ", value[0], 0) + value[1] if bucket else value
        place = (len(items) - n) * 16 + len(data)
        head += struct.pack("<IIII", bucket, place, len(key), len(stored))
        data += key + stored
    page = head + data
    overflow = (16 + len(page) - 1) // SIZE
    page = struct.pack("<QHHI", number, LEAF, len(items), overflow) + page
    return page.ljust((overflow + 1) * SIZE, b"\0") if number else page


def branch(children, number):
    head, data = b"", b""
    for n, (key, child) in enumerate(children):
        head += struct.pack("<IIQ", (len(children) - n) * 16 + len(data), len(key), child)
        data += key
    page = struct.pack("<QHHI", number, BRANCH, len(children), 0) + head + data
    return page.ljust(SIZE, b"\0")
