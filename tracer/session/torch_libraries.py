"""The libtorch that each target has mapped, opened as the target sees it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from probes.symbols.reading import UnreadableSymbols, open_regular
from probes.torch_calls import LIBRARY

_MAPPED = re.compile(rf"^\S+ ..x. \S+ \S+ \d+\s+(/.*/{re.escape(LIBRARY)})$", re.MULTILINE)
_MOST = 16
"""Builds of PyTorch, in as many containers."""


def open_libraries(pids: Iterable[int]) -> list[int]:
    """Descriptors of the libtorch that these processes run, each file once."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError, UnreadableSymbols):
            match = _MAPPED.search(Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape"))
            if match is None or len(found) == _MOST:
                continue
            fd, status = open_regular(f"/proc/{pid}/root{match[1]}")
            if (status.st_dev, status.st_ino) in found:
                os.close(fd)
            found.setdefault((status.st_dev, status.st_ino), fd)
    return list(found.values())
