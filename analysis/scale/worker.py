"""What a worker of ours does when it starts: Dask calls `dask_setup`."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C, which reaches every process of the terminal, to the one that ends workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
