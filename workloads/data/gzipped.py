"""IDX files that are still gzipped, as MNIST is distributed.

They are unpacked once per run, since a sample inside a gzip stream cannot be read by offset.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

from tracer.workloads.data import idx
from tracer.workloads.data.folder import MEND
from tracer.workloads.errors import JobError
from tracer.workloads.files import open_anew

_AT_ONCE = 1 << 20


def unpack_idx(packed: Path, target: Path, dimensions: int, room: int) -> None:
    """Unpacks `packed` to `target`. Raises JobError for a bad file, and the system's OSError.

    It unpacks no more than the IDX header states, and nothing if that exceeds `room` bytes, since
    a small file can claim any size.
    """
    try:
        with gzip.open(packed, "rb") as source:
            header = source.read(idx.header_bytes(dimensions))
            shape = idx.parse_header(header, dimensions, packed)
            expected = len(header) + math.prod(shape)
            if expected > room:
                raise JobError(
                    f"{packed} unpacks to {expected} bytes; {target.parent} has room for {room}",
                    "name another --output folder",
                )
            with open_anew(target) as file:
                file.write(header)
                size = len(header)
                # One byte past the stated end reveals a file that is too long.
                while block := source.read(min(_AT_ONCE, expected + 1 - size)):
                    file.write(block)
                    size += len(block)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise JobError(f"{packed} is not a complete gzip file: {error}", MEND) from error
    idx.check_size(packed, shape, size)
