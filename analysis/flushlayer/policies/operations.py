"""What an access asks of the layer, by the kind of buffer: write-only, read-write, sync-only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from probes.errors import UsageError

WRITE = 0
"""Into the layer: the page is dirty there, and takes a slot where it had none."""
READ = 1
"""Through the layer: a resident copy serves it; another page takes a slot, clean."""
PAST = 2
"""A write past the layer to the disk: a resident copy is stale and dropped, not destaged."""
LOOK = 3
"""A read of the disk: a resident copy, being newer, serves it; nothing in the layer changes."""

BUFFERS = {
    "write-only": "every write goes into the layer; reads take no slot",
    "read-write": "every write goes into the layer, and what is read stays in it, too",
    "sync-only": "writes that somebody waits for go into the layer, others past it to the disk;"
    " reads take no slot",
}
"""The kinds of buffer, and what they take."""


def operations(
    buffer: str, is_write: NDArray[np.bool_], waited: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """What each access asks of a kind of buffer: WRITE, READ, PAST or LOOK, uint8[N].

    `is_write[i]`: access i writes; `waited[i]`: somebody waits for it (used by sync-only). Raises
    UsageError, naming the kinds there are, for another kind.
    """
    if buffer not in BUFFERS:
        raise UsageError(f"there is no buffer {buffer!r}", f"known: {', '.join(BUFFERS)}")
    read = np.uint8(READ if buffer == "read-write" else LOOK)
    if buffer == "sync-only":
        write = np.where(waited, np.uint8(WRITE), np.uint8(PAST))
    else:
        write = np.full(len(is_write), WRITE, np.uint8)
    return np.where(is_write, write, read)
