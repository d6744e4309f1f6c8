"""Start of a local Dask worker: Dask calls `dask_setup`."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Ignores Ctrl-C, which reaches all processes of the terminal: the main one ends workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
