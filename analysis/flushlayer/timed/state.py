"""The state of a timed simulation: a few arrays of int64 rows, and the names of their columns.

All state is in arrays, so that a compiled loop can stop, get longer arrays, and continue. Numba's
cache of compiled code contains these numbers, but does not notice when they change: after a change
here, also change every file that uses the number. Times are in ns, places in sectors of 512 bytes;
-1 means none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

WRITE, READ, FLUSH = 0, 1, 2
"""The operation of a bio (`op`)."""

# A bio. Only closed replay has NEXT .. GAP.
TS, SECTOR, SECTORS, PAGES, FIRST, DEVICE, HOME_LAYER, OP, FUA, TENANT, WAITS = range(11)
ARRIVED, FINISHED, PENDING, NEEDS_ROOM, HITS, EVICTIONS = range(11, 17)
BIO_OPEN = 17
NEXT, RELEASES, BLOCKERS, GAP = range(17, 21)
BIO_CLOSED = 21

# A page. The last rows are list heads: one for each layer (its pages), then one for each layer and
# disk (its dirty pages). PLACE and SPAN: first dirty sector, and sectors up to the last dirty one.
HOME, NEWER, OLDER, DIRTY_NEWER, DIRTY_OLDER, DIRTY, PLACE, SPAN, DISK = range(9)
WRITTEN, NUMBER, FLIGHT = range(9, 12)
SLOT = 12

# A layer.
CAPACITY, USED, DIRTIES, FLYING, ACTIVE, WRITES, COMMITTED, OVERWRITTEN = range(8)
DESTAGED, READ_HITS, AGE_ARMED, COMMIT_ARMED, HIGH, LOW, PEAK = range(8, 15)
LAYER = 15

# A part of a device's request: the share of one bio or one page. Merged parts are chained to the
# first one, which is in the device's queue.
P_SECTOR, P_SECTORS, P_OP, P_FUA, P_KIND, P_OWNER, P_SINCE, P_CHAIN, P_LAST = range(9)
P_AHEAD, P_BEHIND, P_EPOCH, P_LAYER, P_DEVICE, P_OWN_SECTORS = range(9, 15)
PART = 15

HOST, EVICTED, BACKGROUND, CACHED = 0, 1, 2, 3
"""Kinds of parts: of a bio; of a page that is evicted for a bio; of a page that the destage policy
sends; of a write that the disk's cache has acknowledged."""

# A device: the disks, then the medium of the layer.
HEAD, TAIL, WAITING, FREE, IN_SYSTEM, MOST, AT_SECTOR, AT_TIME, BUS_FREE, BUSY = range(10)
SERVED, MERGED, CHANGED, LAST_HOST, IDLE_ARMED, TOUCHED, PASSED = range(10, 17)
CACHE_USED, CACHE_OUT, EPOCH, OLDEST_EPOCH, BYTES_READ, BYTES_WRITTEN, PARTS = range(17, 24)
LINE = 24

# An epoch: the writes that a disk's cache accepted between two flushes.
E_OUT, E_FLUSH, E_NEXT = range(3)
EPOCH_ROW = 3

# Scalars.
NOW, NEXT_BIO, HEAP_SIZE, SEQUENCE, FREE_PART, FREE_PARTS, DONE, LAST_END = range(8)
CLOSED, HEAP_MARGIN, PART_MARGIN, TOUCHES, EPOCHS, WAITING_TENANTS, READS_ENTER = range(8, 15)
FLUSHES_PASS = 15
CLOCK = 16

# Events, packed with the row they are about.
ARRIVE, FINISH_SERVICE, ACKNOWLEDGE, AGE, COMMIT, IDLE = range(6)
EVENT_BITS = 3


class World(NamedTuple):
    """Every array of a simulation, for the compiled loops."""

    page: NDArray[np.int32]
    """Pages of all bios, one bio after another."""
    evicted: NDArray[np.int32]
    """The page that another policy evicts at each page access. Empty: least recently used."""
    bio: Rows
    slot: Rows
    layer: Rows
    part: Rows
    line: Rows
    epoch: Rows
    heap: Rows
    """Events: time, sequence, kind and row."""
    clock: Rows
    touched: Rows
    tenant: Rows
    """1 if the tenant's last bio was in a phase that waits for the disk."""
    model: NDArray[np.float64]
    """One row per device; columns in service.py."""
    area: NDArray[np.float64]
    """Integral over time (ns) of the parts in each device."""
    rule: Rows
    """The destage policy; columns in destage.py."""
