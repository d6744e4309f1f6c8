"""The operation of an access on the layer, by kind of buffer: write-only, read-write, sync-only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.probes.errors import UsageError

WRITE = 0
"""A write into the layer: the page becomes dirty, and takes a slot if it is not resident."""
READ = 1
"""A read through the layer: a resident copy serves it; a page that is not resident takes a slot,
clean."""
PAST = 2
"""A write past the layer to the disk: a resident copy becomes stale and is dropped, not
destaged."""
LOOK = 3
"""A read of the disk: a resident copy serves it, because it is newer; the layer does not change."""
PAST_PART = 4
"""A write past the layer to the disk that leaves other sectors of the page to be destaged: the
layer does not change. Policies do not see it."""

BUFFERS = {
    "write-only": "every write goes into the layer; reads take no slot",
    "read-write": "every write goes into the layer; pages that are read also stay in it",
    "sync-only": "writes that somebody waits for go into the layer, others past it to the disk;"
    " reads take no slot",
}
"""The kinds of buffer, and the accesses that enter them."""


def operations(
    buffer: str,
    is_write: NDArray[np.bool_],
    waited: NDArray[np.bool_],
    leaves_part: NDArray[np.bool_] | None = None,
) -> NDArray[np.uint8]:
    """Returns the operation of each access (uint8[N]).

    `is_write[i]`: access i writes. Used by sync-only: `waited[i]`: somebody waits for access i;
    `leaves_part[i]`: if it goes past the layer, it leaves sectors to be destaged (None: no access
    does). Raises UsageError, with the known kinds, for an unknown kind.
    """
    if buffer not in BUFFERS:
        raise UsageError(f"there is no buffer {buffer!r}", f"known: {', '.join(BUFFERS)}")
    read = np.uint8(READ if buffer == "read-write" else LOOK)
    if buffer == "sync-only":
        past = np.full(len(is_write), PAST, np.uint8)
        if leaves_part is not None:
            past[leaves_part] = PAST_PART
        write = np.where(waited, np.uint8(WRITE), past)
    else:
        write = np.full(len(is_write), WRITE, np.uint8)
    return np.where(is_write, write, read)
