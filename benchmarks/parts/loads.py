"""Loads that benchmarks trace: each runs on every CPU at once and prints its time.

    python benchmarks/parts/loads.py calls N       N system calls per CPU, by dd
    python benchmarks/parts/loads.py faults N      N minor faults per CPU, on anonymous memory

Prints {"seconds": s, "events": n, "cpu_s": c}: wall time of the load alone, the total number of
its events, and its CPU time.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import subprocess
import sys
import time

_PAGES = 4096


def calls(count: int) -> int:
    """Reads and writes one byte at a time, two calls per byte; returns the number of calls."""
    cpus = os.cpu_count() or 1
    command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={count // 2}", "status=none"]
    running = [subprocess.Popen(command) for _ in range(cpus)]
    for process in running:
        process.wait()
    return cpus * (count // 2) * 2


def faults(count: int) -> int:
    """Touches fresh pages; returns the number of faults."""
    cpus = os.cpu_count() or 1
    rounds = max(1, count // _PAGES)
    children = []
    for _ in range(cpus):
        pid = os.fork()
        if pid == 0:
            memory = mmap.mmap(-1, _PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)
            memory.madvise(mmap.MADV_NOHUGEPAGE)
            start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            for _ in range(rounds):
                ctypes.memset(start, 1, _PAGES * mmap.PAGESIZE)
                memory.madvise(mmap.MADV_DONTNEED)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return cpus * rounds * _PAGES


if __name__ == "__main__":
    kind, count = sys.argv[1], int(sys.argv[2])
    begun = time.perf_counter()
    made = {"calls": calls, "faults": faults}[kind](count)
    spent = time.perf_counter() - begun
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in used)
    print(json.dumps({"seconds": spent, "events": made, "cpu_s": cpu_s}), flush=True)
