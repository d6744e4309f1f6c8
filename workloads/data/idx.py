"""IDX files, MNIST's format: a header, then unsigned bytes or 4-byte integers in C order.

    offset  size      field
         0     4      magic: 0, 0, 0x08 for bytes or 0x0c for integers of 4, number of dimensions
         4     4 * n  the n dimensions, big-endian
     4+4*n     ...    the data, integers big-endian

Source: the format note on the MNIST page (http://yann.lecun.com/exdb/mnist/).
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.workloads.data.folder import MEND, open_regular
from tracer.workloads.errors import JobError, explained

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Type = np.dtype[Any]

BYTE: Type = np.dtype(np.uint8)
INT: Type = np.dtype(">i4")
_CODES = {BYTE: 0x08, INT: 0x0C}


def header_bytes(dimensions: int) -> int:
    """Returns the length of a header with this number of dimensions."""
    return 4 + 4 * dimensions


def pack_header(shape: tuple[int, ...], of: Type = BYTE) -> bytes:
    """Returns the header of a file with data of this shape and type."""
    return struct.pack(f">I{len(shape)}I", _magic(len(shape), of), *shape)


def parse_header(header: bytes, dimensions: int, path: Path, of: Type = BYTE) -> tuple[int, ...]:
    """Returns the shape in `header`, read from `path`. Raises JobError if it is not IDX."""
    if len(header) < header_bytes(dimensions):
        raise JobError(f"{path} ends inside its IDX header, after {len(header)} bytes", MEND)
    magic, *shape = struct.unpack(f">I{dimensions}I", header[: header_bytes(dimensions)])
    if magic != _magic(dimensions, of):
        raise JobError(
            f"{path} is no IDX file of {dimensions} dimensions: "
            f"it begins with {magic:08x}, not {_magic(dimensions, of):08x}",
            MEND,
        )
    return tuple(shape)


def check_size(path: Path, shape: tuple[int, ...], size: int, of: Type = BYTE) -> None:
    """Raises JobError unless `size` bytes are exactly the size of a file with data of `shape`."""
    expected = header_bytes(len(shape)) + math.prod(shape) * of.itemsize
    if size != expected:
        raise JobError(
            f"{path} has {size} bytes, but its header ({' x '.join(map(str, shape))}) "
            f"asks for {expected}",
            MEND,
        )


@dataclass
class IdxFile:
    """A checked file of `shape[0]` items, read by offset. Each process opens the file itself."""

    path: Path
    shape: tuple[int, ...]
    of: Type = BYTE
    mend: str = MEND
    _fd: int | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_fd": None}

    def __del__(self) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def read(self, first: int, count: int = 1) -> NDArray[Any]:
        """Reads items `first` to `first + count - 1` as an array [count, *shape[1:]], by one pread.

        Raises JobError if the file has become shorter.
        """
        item = math.prod(self.shape[1:]) * self.of.itemsize
        offset = header_bytes(len(self.shape)) + first * item
        with explained(f"cannot read {self.path}", "look at the disk and the folder"):
            if self._fd is None:
                self._fd = open_regular(self.path)
            data = os.pread(self._fd, count * item, offset)
        if len(data) != count * item:
            raise JobError(f"{self.path} was cut short while the job read it", self.mend)
        return np.frombuffer(data, dtype=self.of).reshape(count, *self.shape[1:])


def open_idx(path: Path, dimensions: int, of: Type = BYTE) -> IdxFile:
    """Opens an IDX file and checks its type, magic, dimensions and size. Raises JobError."""
    with explained(f"cannot read {path}", "make the file readable for this user"):
        fd = open_regular(path)
        try:
            size = os.fstat(fd).st_size
            header = os.pread(fd, header_bytes(dimensions), 0)
        finally:
            os.close(fd)
    shape = parse_header(header, dimensions, path, of)
    check_size(path, shape, size, of)
    return IdxFile(path, shape, of)


def _magic(dimensions: int, of: Type) -> int:
    return _CODES[of] << 8 | dimensions
