"""Numbers that the kernel cannot exceed, on any Linux."""

from __future__ import annotations

PID_LIMIT = 4 << 20
"""Exclusive limit of process and thread ids: PID_MAX_LIMIT of 64-bit machines
(include/linux/threads.h)."""

CPU_LIMIT = 1 << 15
"""Exclusive limit of CPU numbers: all that fit into a 16-bit column; four times the largest
NR_CPUS."""

TIME_LIMIT = 1 << 62
"""Exclusive limit of times (ns), 146 years after the boot: the sum of two fits into 64 bits."""
