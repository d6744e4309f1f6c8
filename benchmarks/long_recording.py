"""Memory of a recorder during a long recording.

    python benchmarks/long_recording.py --json [--minutes N] [--load lenet|churn] [--keep DIR]

Records a job for N minutes, and prints one JSON object: `rss_mib`, the recorder's resident memory
at the end of each minute; `growth`, the last of these over that at minute 10 (for a shorter
recording, over the first); `finalize_mib`, the peak memory while it made the tables, and
`finalize_s`, the time for that; `raw_mib`, the size of the raw streams; `events`, `phases` and
`lost`.

The job is LeNet with two DataLoader workers (`parts/steps.py`). The load `churn` makes the files,
mappings, threads and marks of such a job as fast as possible (`parts/churn.py`); `steps` is the
equivalent number of steps of LeNet. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PARTS = Path(__file__).with_name("parts")
TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
_LOOK_S = 0.05
_SETTLED = 10
"""The minute with which later minutes are compared."""
_PEAK = "5"
"""Value that resets VmHWM when written to /proc/PID/clear_refs: proc(5)."""


def main() -> None:
    """Records, and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--minutes", type=float, default=2.0, help="length of the recording")
    parser.add_argument("--load", choices=("lenet", "churn"), default="lenet")
    parser.add_argument("--keep", type=Path, help="folder in which to keep the trace")
    options = parser.parse_args()
    with _folder(options.keep) as folder:
        result = measure(options.load, options.minutes, folder)
    print(json.dumps(result) if options.json else json.dumps(result, indent=1))


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def measure(load: str, minutes: float, folder: Path) -> dict[str, Any]:
    """Records a load for this time; returns the results."""
    job = [sys.executable, str(PARTS / "churn.py")]
    if load == "lenet":
        job = [sys.executable, str(PARTS / "steps.py"), "lenet", str(folder)]
    trace = folder / "long.trace"
    command = [*TRACER, "record", "--force", "-d", str(60 * minutes), "-o", str(trace)]
    with subprocess.Popen([*command, "--", *job], stderr=subprocess.PIPE, text=True) as recorder:
        try:
            rss, begun = _until_captured(recorder, trace)
            Path(f"/proc/{recorder.pid}/clear_refs").write_text(_PEAK)
            peak = 0.0
            while (now := _mib(recorder.pid, "VmHWM")) is not None:
                peak = max(peak, now)
                time.sleep(_LOOK_S)
        finally:
            recorder.terminate()  # has already ended, unless this function failed
        assert recorder.stderr is not None
        words = recorder.stderr.read()
        if recorder.wait():
            raise SystemExit(f"the recording failed: {words}")
    return _figures(trace, rss, peak, time.monotonic() - begun)


def _until_captured(recorder: subprocess.Popen[str], trace: Path) -> tuple[list[float], float]:
    """Returns resident memory at the end of each minute of the capture, and the time of its end."""
    assert recorder.stderr is not None
    if not (said := recorder.stderr.readline()).startswith("Tracing"):
        raise SystemExit(f"the recording did not begin: {said}{recorder.stderr.read()}")
    manifest = trace / "manifest.json"
    rss: list[float] = []
    now: float | None = 0.0
    begun = time.monotonic()
    while json.loads(manifest.read_text())["state"] == "recording":
        now = _mib(recorder.pid, "VmRSS")
        if now is None:
            raise SystemExit(f"the recorder ended early: {recorder.stderr.read()}")
        if time.monotonic() - begun >= 60 * (len(rss) + 1):
            rss.append(round(now, 1))
        time.sleep(_LOOK_S)
    return rss or [round(now or 0, 1)], time.monotonic()


def _mib(pid: int, what: str) -> float | None:
    """Returns a value of /proc/PID/status; None if the process has ended."""
    with contextlib.suppress(OSError):
        found = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
        return int(found[1]) / 1024 if found else None
    return None


def _figures(trace: Path, rss: list[float], peak: float, took: float) -> dict[str, Any]:
    manifest = json.loads((trace / "manifest.json").read_text())
    tables = manifest["tables"]
    return {
        "rss_mib": rss,
        "growth": round(
            rss[-1] / rss[min(_SETTLED, len(rss)) - 1 if len(rss) > _SETTLED else 0], 3
        ),
        "finalize_mib": round(peak, 1),
        "finalize_s": round(took, 1),
        "raw_mib": round(manifest["own_cost"]["raw_bytes"] / (1 << 20), 1),
        "events": sum(table["rows"] for table in tables.values()),
        "phases": tables["phases"]["rows"],
        "lost": manifest["loss"]["events"],
    }


if __name__ == "__main__":
    main()
