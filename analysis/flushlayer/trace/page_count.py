"""How many pages a trace may claim: each of them takes memory."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from analysis.exchange.block_rows import MOST_BYTES
from probes.errors import BadTrace, UsageError
from tracer.store.trace import Trace

MOST_PAGES = MOST_BYTES // 4096
"""No bio has more."""

BYTES_A_PAGE = 160
"""Of memory that an access to a page takes while a model is made of it (measured: 82 to 161)."""
_MOST_OF_MEMORY = 0.8


def check_pages(trace: Trace, pages: NDArray[Any], bytes_a_page: int = BYTES_A_PAGE) -> None:
    """Refuse the pages of each bio of a trace where they cannot be, or do not fit in memory.

    Raises BadTrace for a bio that is larger than any, UsageError where there are too many.
    """
    if not len(pages):
        return
    if pages.max() > MOST_PAGES or pages.min() < 0:
        raise BadTrace(
            f"{trace.folder} claims more than {MOST_PAGES} pages of one bio", "it is damaged"
        )
    total = int(pages.sum(dtype=np.int64))
    needed, free = total * bytes_a_page, int(free_memory() * _MOST_OF_MEMORY)
    if needed > free:
        raise UsageError(
            f"the {total} page accesses of {trace.folder} take {needed >> 20} MiB of memory,"
            f" and {free >> 20} can be had",
            "take some of its devices, or a larger machine",
        )


def free_memory() -> int:
    """Bytes of memory that this process can have."""
    free = int(psutil.virtual_memory().available)
    status = Path("/proc/self/status").read_text()
    for limit, held in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            free = min(free, most - (int(status.partition(held)[2].split()[0]) << 10))
    return max(0, free)
