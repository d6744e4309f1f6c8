"""The pages of the models, and the limit of their number, because each page takes memory."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from tracer.analysis.exchange.block_rows import MOST_BYTES
from tracer.probes.errors import BadTrace, UsageError
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

MODEL_PAGE = 4096
"""Bytes of a page of the models. A page of the recorded kernel has these, or a multiple."""
_LARGEST_PAGE = 1 << 18
"""Bytes of the largest page of any Linux kernel: arch/hexagon/Kconfig."""
MOST_PAGES = MOST_BYTES // MODEL_PAGE
"""Most pages of a bio."""

BYTES_A_PAGE = 160
"""Bytes of memory per page access while a model runs (measured: 82 to 161)."""
_MOST_OF_MEMORY = 0.8


def check_pages(trace: Trace, pages: NDArray[Any], bytes_a_page: int = BYTES_A_PAGE) -> None:
    """Checks the number of pages of each bio of a trace.

    Raises BadTrace for a bio with more than MOST_PAGES or less than 0 pages, UsageError if all
    pages together do not fit in memory.
    """
    if not len(pages):
        return
    if pages.max() > MOST_PAGES or pages.min() < 0:
        raise BadTrace(
            f"{trace.folder} has a bio with more than {MOST_PAGES} pages", "the trace is damaged"
        )
    total = int(pages.sum(dtype=np.int64))
    needed, free = total * bytes_a_page, int(free_memory() * _MOST_OF_MEMORY)
    if needed > free:
        raise UsageError(
            f"the {total} page accesses of {trace.folder} need {needed >> 20} MiB of memory,"
            f" and {free >> 20} MiB are available",
            "choose some of its devices, or use a machine with more memory",
        )


def pages_of_kernel(trace: Trace) -> int:
    """Returns how many pages of the models a page of the recorded kernel has: a power of 2.

    Events of dirtying and of the page cache count pages of the kernel, which have 64 KiB on some
    Arm machines.
    """
    size = min(page_bytes(trace.manifest), _LARGEST_PAGE)
    return 1 << max(0, (size // MODEL_PAGE).bit_length() - 1)


def free_memory() -> int:
    """Returns the bytes of memory that this process can still allocate."""
    free = int(psutil.virtual_memory().available)
    status = Path("/proc/self/status").read_text()
    for limit, held in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            free = min(free, most - (int(status.partition(held)[2].split()[0]) << 10))
    return max(0, free)
