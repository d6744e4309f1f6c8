"""The recorder in a guest: started, awaited, and ended before it makes tables.

Needs only Python's standard library.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from scripts.kernels.facts import SHARED

ROOT = Path(__file__).resolve().parent.parent.parent
PLACE = Path("/run/tracer")
"""The folder of a guest's own files."""
TRACER = [sys.executable, "-m", "tracer"]
PYTHON = [sys.executable, "-S", "-E"]
"""An interpreter without any packages, which starts quickly."""
_RECORDING_S = 1200.0
"""Most seconds of a recording."""


def awaited(recorder: subprocess.Popen[bytes], trace: Path, begun: float) -> bool:
    """Waits for the end of a capture; returns whether all raw data is in the trace directory."""
    manifest, seen = trace / "manifest.json", 0
    while time.monotonic() - begun < _RECORDING_S:
        over = recorder.poll() is not None
        if manifest.exists() and (changed := manifest.stat().st_mtime_ns) != seen:
            seen = changed
            if json.loads(manifest.read_text())["state"] in ("captured", "finalized"):
                return True
        if over:
            return False
        time.sleep(0.5)
    return False


def handed_over(trace: Path) -> None:
    """Moves a trace without tables to the folder for results."""
    shutil.copytree(trace, SHARED / trace.name, ignore=shutil.ignore_patterns(".events*"))
    shutil.rmtree(trace)
