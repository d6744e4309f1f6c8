"""A check of a recording."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scripts.kernels.recorded import Recorded


@dataclass(frozen=True)
class Check:
    """A question to a recording."""

    title: str
    look: Callable[[Recorded], str | None]
    """Returns a note on its success, or none. Raises Failed or Skipped."""
