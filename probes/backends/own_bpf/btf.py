"""The kernel's types, as it tells them itself: BTF (Documentation/bpf/btf.rst)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from tracer.probes.compiled import compiled
from tracer.probes.errors import FeatureMissing

_FILE = Path("/sys/kernel/btf/vmlinux")
_MAGIC = 0xEB9F
_HEADER = struct.Struct("=HBBIIIII")
_TYPE, _MEMBER = 12, 12
STRUCT, UNION, TYPEDEF = 4, 5, 8
_TRAILING = np.zeros(32, np.int64)
"""Bytes after a type's three words, by kind."""
_TRAILING_EACH = np.zeros(32, np.int64)
"""Bytes after these for each of the type's parts (`vlen`), by kind."""
for _kind, _bytes in {1: 4, 3: 12, 14: 4, 17: 4}.items():  # INT, ARRAY, VAR, DECL_TAG
    _TRAILING[_kind] = _bytes
for _kind, _bytes in {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}.items():
    # STRUCT, UNION, ENUM, FUNC_PROTO, DATASEC, ENUM64
    _TRAILING_EACH[_kind] = _bytes


class Types:
    """The types of the running kernel."""

    def __init__(self, path: Path = _FILE) -> None:
        """Reads them. Raises FeatureMissing if the kernel does not tell them."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FeatureMissing(
                f"{path} cannot be read: {error.strerror}",
                "use a kernel with CONFIG_DEBUG_INFO_BTF=y",
            ) from None
        magic, _, _, header, types, types_bytes, strings, strings_bytes = _HEADER.unpack(
            data[: _HEADER.size].ljust(_HEADER.size, b"\0")
        )
        ends = max(_HEADER.size, header + types + types_bytes, header + strings + strings_bytes)
        if magic != _MAGIC or len(data) < ends:
            raise FeatureMissing(f"{path} is not BTF of this machine", "use another kernel")
        self._strings = data[header + strings :][:strings_bytes]
        self._words = np.frombuffer(data, "=u4", types_bytes // 4, header + types)
        self._at = _starts(self._words, _TRAILING // 4, _TRAILING_EACH // 4)

    def number(self, name: str, kind: int) -> int:
        """Returns the id of a type. Raises FeatureMissing if there is none."""
        place = self._strings.find(b"\0" + name.encode() + b"\0") + 1
        if place:
            for index in np.flatnonzero(self._words[self._at] == place):
                if self._kind(int(self._at[index])) == kind:
                    return int(index) + 1
        raise FeatureMissing(f"this kernel's types have no {name}", "use another kernel")

    def offset(self, struct_name: str, member: str) -> int:
        """Returns the offset of a member in bytes; it may be in a part without a name.

        Raises FeatureMissing if the struct has no such member.
        """
        found = self._offset(self.number(struct_name, STRUCT), member.encode())
        if found is None:
            raise FeatureMissing(f"this kernel's {struct_name} has no {member}", "use another one")
        return found

    def _kind(self, at: int) -> int:
        return int(self._words[at + 1]) >> 24 & 0x1F

    def _offset(self, number: int, member: bytes) -> int | None:
        at = int(self._at[number - 1])
        info = int(self._words[at + 1])
        for n in range(info & 0xFFFF):
            name, its_type, bits = (int(w) for w in self._words[at + 3 + 3 * n :][:3])
            bits = bits & 0xFFFFFF if info >> 31 else bits  # with sizes of bit fields
            if name and self._string(name) == member:
                return bits // 8
            if not name and self._kind(int(self._at[its_type - 1])) in (STRUCT, UNION):
                inner = self._offset(its_type, member)
                if inner is not None:
                    return bits // 8 + inner
        return None

    def _string(self, at: int) -> bytes:
        return self._strings[at : self._strings.index(b"\0", at)]


@compiled
def _starts(words: Any, once: Any, each: Any) -> Any:
    """Returns the index of each type's first word.

    `once` and `each` are the words after a type's first three, by kind: of the type, of each part.
    """
    starts = np.empty(len(words) // 3, np.int64)
    n = 0
    at = 0
    while at + 3 <= len(words):
        starts[n] = at
        n += 1
        kind = words[at + 1] >> 24 & 0x1F
        at += 3 + once[kind] + each[kind] * np.int64(words[at + 1] & 0xFFFF)
    return starts[:n]
