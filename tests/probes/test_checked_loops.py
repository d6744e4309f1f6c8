"""Compiled loops check every index that they use, while they read what others made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
CHECKED = {
    "NUMBA_BOUNDSCHECK": "1",
    "NUMBA_CACHE_DIR": str(ROOT / ".venv" / "checked-loops"),  # apart from the unchecked ones
}
FILES = (
    "tests/tracer/test_impossible_events.py",
    "tests/probes/test_ring_buffer.py",
    "tests/probes/test_chunks.py",
    "tests/probes/test_off_cpu_damage.py",
    "tests/analysis/exchange/test_import_hostile.py::test_many_lines_as_short_as_they_can_be",
)


def test_no_number_of_a_file_leads_out_of_an_array():
    """Numba checks indices only in a process that was started so."""
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", *FILES]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **CHECKED},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert " passed" in ran.stdout
