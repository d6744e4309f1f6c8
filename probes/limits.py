"""Numbers that the kernel cannot exceed, on any Linux."""

from __future__ import annotations

PID_LIMIT = 4 << 20
"""Process and thread ids are below: PID_MAX_LIMIT on 64-bit machines (include/linux/threads.h)."""

CPU_LIMIT = 1 << 15
"""CPU numbers are below: as many as a column of 16 bits holds, four times the largest NR_CPUS."""

TIME_LIMIT = 1 << 62
"""Times (ns) are below, 146 years after the boot: two of them add up within 64 bits."""
