"""Reads a database of bbolt, in which containerd keeps its containers, without a lock.

Format: bbolt's page.go, db.go (meta) and bucket.go. The writer never changes a page that its last
transaction uses, but may use freed pages again. A reading is therefore repeated if a transaction
has ended meanwhile. The file is hostile input: places, depths and numbers of pages are limited.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")

_MAGIC, _VERSION = 0xED0CDAED, 2
_PAGE, _META = struct.Struct("<QHHI"), struct.Struct("<IIIIQQQQQQ")
_LEAF, _BRANCH, _BUCKET = struct.Struct("<IIII"), struct.Struct("<IIQ"), struct.Struct("<QQ")
_IS_BRANCH, _IS_LEAF, _IS_BUCKET = 0x01, 0x02, 0x01
_SIZES = range(512, (64 << 10) + 1)
"""Sizes of a page."""
_LONGEST = 16 << 20
"""Most bytes of a page with its overflow."""
_MOST_PAGES = 100_000
_DEEPEST = 32
_ROUNDS = 10
_FNV_START, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


class Damaged(ValueError):
    """The file is no database, or is damaged, or changes faster than it can be read."""


class _Meta(NamedTuple):
    page_size: int
    root: int
    transaction: int


class Bucket(NamedTuple):
    """A bucket: the page of its root, or, if it is small, its only page itself."""

    root: int
    inline: bytes


class Bolt:
    """An open database, as of one transaction. All methods raise Damaged and OSError."""

    def __init__(self, fd: int) -> None:
        """Reads the newest of the two descriptions at the beginning of the file."""
        self._fd = fd
        self._pages = 0
        self._meta = _newest(fd)

    @property
    def root(self) -> Bucket:
        """The bucket that holds all others."""
        return Bucket(self._meta.root, b"")

    @property
    def current(self) -> bool:
        """True if no transaction has ended since this object was made."""
        return _newest(self._fd) == self._meta

    def items(self, bucket: Bucket) -> Iterator[tuple[bytes, bytes | Bucket]]:
        """Yields the keys of a bucket in order, each with its value or the bucket in its place."""
        waiting = [(bucket.root, 0)]
        while waiting:
            number, depth = waiting.pop()
            page = bucket.inline if not bucket.root else self._page(number)
            _, flags, count, _ = _part(_PAGE, page, 0)
            if flags & _IS_BRANCH and bucket.root and depth < _DEEPEST:
                below = [_part(_BRANCH, page, _PAGE.size + n * _BRANCH.size) for n in range(count)]
                waiting += [(child, depth + 1) for *_, child in reversed(below)]
            elif flags & _IS_LEAF:
                for n in range(count):
                    yield _element(page, _PAGE.size + n * _LEAF.size)
            else:
                raise Damaged("a page is of another kind")

    def get(self, within: bytes | Bucket | None, key: bytes) -> bytes | Bucket | None:
        """Returns the value or bucket of a key; None if it, or the bucket, is absent."""
        if not isinstance(within, Bucket):
            return None
        return next((value for name, value in self.items(within) if name == key), None)

    def _page(self, number: int) -> bytes:
        self._pages += 1
        size = self._meta.page_size
        if self._pages > _MOST_PAGES or number < 2 or number > (1 << 62) // size:
            raise Damaged("a page lies outside")
        page = os.pread(self._fd, size, number * size)
        own, _, _, overflow = _part(_PAGE, page, 0)
        if own != number or (overflow + 1) * size > _LONGEST:
            raise Damaged("a page is another one")
        if overflow:
            page += os.pread(self._fd, overflow * size, (number + 1) * size)
        return page


def _part(shape: struct.Struct, page: bytes, at: int) -> tuple[int, ...]:
    try:
        return shape.unpack_from(page, at)
    except struct.error:
        raise Damaged("a page is too short") from None


def _element(page: bytes, at: int) -> tuple[bytes, bytes | Bucket]:
    flags, place, key_bytes, value_bytes = _part(_LEAF, page, at)
    begin = at + place
    end = begin + key_bytes + value_bytes
    if end > len(page):
        raise Damaged("a value lies outside its page")
    key, value = page[begin : begin + key_bytes], page[begin + key_bytes : end]
    if not flags & _IS_BUCKET:
        return key, value
    root, _ = _part(_BUCKET, value, 0)
    return key, Bucket(root, value[_BUCKET.size :] if not root else b"")


def _newest(fd: int) -> _Meta:
    first = _meta(os.pread(fd, _PAGE.size + _META.size, 0))
    sizes = [first.page_size] if first else [4096, 16 << 10, 64 << 10]
    others = [_meta(os.pread(fd, _PAGE.size + _META.size, size)) for size in sizes]
    known = [meta for meta in (first, *others) if meta is not None]
    if not known:
        raise Damaged("the file is no database of bbolt")
    return max(known, key=lambda meta: meta.transaction)


def _meta(page: bytes) -> _Meta | None:
    if len(page) < _PAGE.size + _META.size:
        return None
    magic, version, size, _, root, _, _, _, transaction, checksum = _META.unpack_from(
        page, _PAGE.size
    )
    total = _FNV_START
    for byte in page[_PAGE.size : _PAGE.size + _META.size - 8]:
        total = (total ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    known = magic == _MAGIC and version == _VERSION and size in _SIZES and total == checksum
    return _Meta(size, root, transaction) if known else None


def read(fd: int, reading: Callable[[Bolt], T]) -> T:
    """Returns the result of a reading that no transaction disturbed. Raises Damaged, OSError."""
    for _ in range(_ROUNDS):
        database = Bolt(fd)
        try:
            found = reading(database)
        except Damaged:
            if database.current:
                raise
            continue
        if database.current:
            return found
    raise Damaged("the database changes all the time")
