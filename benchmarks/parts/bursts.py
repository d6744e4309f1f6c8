"""Requests to a device like those of ext4's journal for log lines, and large writes.

python bursts.py DEVICE

Repeats, after a pause each time: two writes of a page, a flush, a write, a flush. The first write
wakes sleeping threads. Then writes 1 MiB at a time without a pause. Overwrites the device.
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
