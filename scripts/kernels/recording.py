"""A guest's first process, and a recording in it whose tables are made elsewhere.

Needs only Python's standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripts.kernels.facts import ALIVE, FACTS, JOB, SHARED

ROOT = Path(__file__).resolve().parent.parent.parent
PLACE = Path("/run/tracer")
"""The folder of a guest's own files."""
TRACER = [sys.executable, "-m", "tracer"]
PYTHON = [sys.executable, "-S", "-E"]
"""An interpreter without any packages, which starts quickly."""
_POWER_OFF = 0x4321FEDC
"""include/uapi/linux/reboot.h"""
_RECORDING_S = 1200.0
"""Most seconds of a recording."""


def as_first_process(work: Callable[[Any], None]) -> None:
    """Calls `work` with the job that the host left, and powers the guest off whatever happens."""
    try:
        (SHARED / ALIVE).touch()
        job = json.loads((SHARED / JOB).read_text())
        _install(Path(job["modules"]), Path(job["sources"]))
        paths = (str(ROOT), job["libraries"])
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        work(job)
    except Exception:  # noqa: BLE001 the guest has nobody else to tell
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os.sync()
        ctypes.CDLL(None).reboot(_POWER_OFF)


def hand_over(facts: Any) -> None:
    """Gives the host all facts found so far."""
    partial = SHARED / f"{FACTS}.partial"
    partial.write_text(json.dumps(facts, indent=1))
    partial.rename(SHARED / FACTS)


def _install(modules: Path, sources: Path) -> None:
    """Puts the kernel's modules and headers where they would be installed."""
    links = {Path("/lib/modules", modules.name): modules}
    links |= {Path("/usr/src", path.name): path for path in sources.iterdir()}
    for link, place in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(place)


def record(name: str, options: Sequence[str], command: Sequence[str]) -> str | None:
    """Records a command, and hands the trace `NAME.trace` over once its raw data is whole.

    From then on, the recorder would only make tables: it is ended. Returns the recorder's last
    words if it failed; None if it did not.
    """
    trace, said, begun = PLACE / f"{name}.trace", PLACE / f"{name}.err", time.monotonic()
    with (
        said.open("wb") as errors,
        subprocess.Popen(
            [*TRACER, "record", "-o", str(trace), *options, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd=PLACE,
        ) as recorder,
    ):
        captured = awaited(recorder, trace, begun)
        recorder.kill()
    if not captured:
        return said.read_text(errors="replace").strip()
    handed_over(trace)
    return None


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
