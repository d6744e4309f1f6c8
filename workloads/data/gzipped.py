"""IDX files that are still gzipped, as MNIST is handed out.

They are unpacked once a run: a sample in the middle of a gzip stream cannot be read by offset.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

from workloads.data import idx
from workloads.data.folder import MEND
from workloads.errors import JobError
from workloads.files import open_anew

_AT_ONCE = 1 << 20


def unpack_idx(packed: Path, target: Path, dimensions: int, room: int) -> None:
    """Write what `packed` holds to `target`. Raises JobError, and OSError of the system.

    No more is unpacked than the header inside states, and nothing where that exceeds `room`
    bytes: a small file can claim to be any size.
    """
    try:
        with gzip.open(packed, "rb") as source:
            header = source.read(idx.header_bytes(dimensions))
            shape = idx.parse_header(header, dimensions, packed)
            expected = len(header) + math.prod(shape)
            if expected > room:
                raise JobError(
                    f"{packed} unpacks to {expected} bytes, but {room} are free at {target.parent}",
                    "name another --output folder",
                )
            with open_anew(target) as file:
                file.write(header)
                size = len(header)
                # One byte past the end tells a file that holds more than it states.
                while block := source.read(min(_AT_ONCE, expected + 1 - size)):
                    file.write(block)
                    size += len(block)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise JobError(f"{packed} is not a whole gzip file: {error}", MEND) from error
    idx.check_size(packed, shape, size)
