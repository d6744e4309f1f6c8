"""Libraries that need more than this machine's CPU has."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

_ENOUGH = "avx2"
"""A feature of x86 CPUs with which all libraries have been seen to run."""
_TRY = "import duckdb; duckdb.sql('SELECT sum(x * 1.5) FROM range(5000) t(x)').fetchall()"
_PATIENCE_S = 60


def why_no_duckdb() -> str | None:
    """Returns the reason for which DuckDB cannot run here, or None.

    Builds of DuckDB use instructions that an old CPU, or one that is emulated, may lack. It is
    tried in a process of its own where the CPU does not tell that it has AVX2.
    """
    if _ENOUGH in _features():
        return None
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _TRY], capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # nothing is known against it
    if tried.returncode != -signal.SIGILL:
        return None
    return "DuckDB uses instructions that this CPU lacks (SIGILL)"


def _features() -> set[str]:
    """Returns the features of the first CPU that /proc/cpuinfo tells, none if it tells none."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return set()
    lines = (line.partition(":") for line in text.splitlines())
    return next((set(value.split()) for name, _, value in lines if name.strip() == "flags"), set())
