"""Asks a device as ext4's journal does for a line of the log, at that pace, and for large writes.

python bursts.py DEVICE

Two writes of a page, a flush, a write, a flush, after a pause each time: the first wakes who
sleeps. Then writes of 1 MiB without a pause. What is on the device is lost.
"""

from __future__ import annotations

import mmap
import os
import sys
import time

PAUSE_S, BURSTS = 0.1, 20
LARGE, LARGE_WRITES = 1 << 20, 60


def main(device: str) -> None:
    file = os.open(device, os.O_WRONLY | os.O_DIRECT)
    with mmap.mmap(-1, LARGE) as large, mmap.mmap(-1, 4096) as page:
        for _ in range(BURSTS):
            time.sleep(PAUSE_S)
            for flushed in (False, True, True):
                os.pwrite(file, page, 0)
                if flushed:
                    os.fdatasync(file)
        for number in range(LARGE_WRITES):
            os.pwrite(file, large, number % 16 * LARGE)
    os.close(file)


if __name__ == "__main__":
    main(sys.argv[1])
