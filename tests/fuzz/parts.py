"""Inputs of several files: the name and the bytes of each file in a row."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from random import Random

_HEAD = struct.Struct("<HI")


def joined(files: Mapping[str, bytes]) -> bytes:
    """Joins files into one input."""
    out = b""
    for name, data in files.items():
        out += _HEAD.pack(len(name.encode()), len(data)) + name.encode() + data
    return out


def parted(data: bytes) -> dict[str, bytes]:
    """Returns the files of an input."""
    found = {}
    at = 0
    while at + _HEAD.size <= len(data):
        name_size, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        name = data[at : at + name_size].decode()
        found[name] = data[at + name_size : at + name_size + size]
        at += name_size + size
    return found


def mutated_parts(
    chance: Random, data: bytes, mutate: Callable[[Random, str, bytes], bytes]
) -> bytes:
    """Changes one or two files of an input; `mutate` gets a file's name and bytes."""
    files = parted(data)
    for name in chance.sample(sorted(files), min(len(files), chance.choice((1, 1, 2)))):
        files[name] = mutate(chance, name, files[name])
    return joined(files)
