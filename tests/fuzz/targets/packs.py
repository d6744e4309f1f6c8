"""Traces in one file."""

from __future__ import annotations

import hashlib
import json
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from tests.fuzz.mutation import NUMBERS, mutated, mutated_text
from tests.fuzz.target import target
from tests.support.traces import make_trace
from tracer.store import packing


@cache
def _files() -> dict[str, bytes]:
    """The files of a small trace."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "t.trace"
        make_trace(trace, {"phases": []}).close()
        return {
            path.relative_to(trace).as_posix(): path.read_bytes()
            for path in sorted(trace.rglob("*"), key=lambda path: path.name != "manifest.json")
            if path.is_file()
        }


def _packed(files: dict[str, bytes], listed: bytes | None = None) -> bytes:
    members: list[dict[str, Any]] = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    if listed is None:
        listed = json.dumps({"pack": 1, "members": members}).encode()
    out = packing._header(packing.LIST, len(listed)) + packing._padded(listed)
    for name, data in files.items():
        out += packing._header(name, len(data)) + packing._padded(data)
    return out + bytes(1024)


def _compressed(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


def _seeds() -> list[bytes]:
    return [_compressed(_packed(_files()))]


def _packs(chance: Random, data: bytes) -> bytes:
    """Change the compressed pack, the archive, a file in it, or its list of files."""
    files = dict(_files())
    match chance.randrange(5):
        case 0:
            return mutated(chance, data)
        case 1:
            return _compressed(mutated(chance, _packed(files)))
        case 2:
            name = chance.choice(list(files))
            files[name] = mutated(chance, files[name])
            return _compressed(_packed(files))
        case 3:
            files[chance.choice(("raw/x", "raw/marks/y", "../z", "raw/" + "x" * 200))] = bytes(9)
            return _compressed(_packed(files))
    members = [{"name": n, "size": chance.choice(NUMBERS), "sha256": "0" * 64} for n in files]
    listed = json.dumps({"pack": chance.choice(NUMBERS), "members": members}).encode()
    return _compressed(_packed(files, mutated_text(chance, listed)))


@target(_seeds, _packs)
def packs(data: bytes, folder: Path) -> None:
    """tracer unpack."""
    (folder / "in.tar.zst").write_bytes(data)
    packing.unpack(folder / "in.tar.zst", folder / "out.trace")
