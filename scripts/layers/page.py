"""The page docs/layers.md, written by the command that makes its tables."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.layers import loads
from scripts.layers.slow_disk import REQUEST_MS

_PAGE = """\
# Stacked devices and real layers

    make test-layers

boots a kernel of Debian in QEMU without hardware support, builds stacks of devices and real layers
in it, records loads on them by ftrace, and compares exact numbers. {kernel}.

## Stacked devices
{stacks}
"""


def page(tables: Mapping[str, str]) -> str:
    """Returns the page."""
    return _PAGE.format(**tables, request_ms=REQUEST_MS, rounds=loads.ROUNDS)
