"""What a recording costs a training step: windows with and without it, in turn, in one process.

    python benchmarks/overhead.py --json [--windows N] [--seconds S] [--models lenet,mobilenet]

A job trains without end and marks its steps; every tool is attached to it for a window, taken
off, and the window after is without any. A window's ratio is its median time from one step's
start to the next, over the mean of the medians of the windows around it. The tools' order changes
from round to round, so that none always follows the same one. Prints

    {MODEL: {TOOL: {"median": r, "low": r, "high": r}}}

with the median of the ratios and its 95 % bootstrap interval. TOOL is `tracer` (its full default
recording, or the probes that the variable TRACER_PROBES names), `perf` (perf record of the same
tracepoints), `strace` (-f), and `none`, whose ratio is this machine's own noise. The time that a
tool needs to attach, and the tracer to make its tables, lies in no window. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from probes.catalogue import PROBES
from probes.schema import Feed
from tracer.store.phases import read_phases

TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
_SETTLE_S = 1.0
_LEAST_STEPS = 20


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--windows", type=int, default=15, help="windows with each tool")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a window")
    parser.add_argument("--models", default="lenet,mobilenet")
    parser.add_argument("--tools", default=",".join(_TOOLS))
    options = parser.parse_args()
    # The background job of a shell ignores it, and so would the tools that it ends.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    result = {
        model: measure(model, options.tools.split(","), options.windows, options.seconds)
        for model in options.models.split(",")
    }
    print(json.dumps(result) if options.json else json.dumps(result, indent=1))


def measure(
    model: str, tools: list[str], windows: int, seconds: float
) -> dict[str, dict[str, float] | None]:
    """Ratios of each tool for one model."""
    tools = [tool for tool in tools if tool in ("none", "tracer") or shutil.which(tool)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        marks = folder / "marks"
        marks.mkdir()
        job = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("steps.py")), model, name],
            env={**os.environ, "TRACER_MARKS": str(marks)},
        )
        try:
            _until_it_trains(folder, job)
            spans: list[tuple[str, int, int]] = [("", *_bare(seconds))]
            order = random.Random(23)
            for number in range(windows + 1):
                for tool in order.sample(tools, len(tools)):
                    span = _TOOLS[tool](job.pid, folder, seconds)
                    if number:  # the first time fills caches
                        spans.append((tool, *span))
                    spans.append(("", *_bare(seconds)))
        finally:
            job.kill()
            job.wait()
        steps = read_phases(marks, 0, None)
    assert steps is not None
    starts = steps.column("start").to_numpy()
    medians = [_median_step(starts, begin, end) for _, begin, end in spans]
    found: dict[str, dict[str, float] | None] = {}
    for tool in tools:
        ratios = []
        for at, (which, _, _) in enumerate(spans):
            around = [medians[i] for i in (at - 1, at + 1) if 0 <= i < len(spans)]
            if which == tool:
                ratios.append(medians[at] / np.mean(around))
        found[tool] = _interval(np.array(ratios))
    return found


def _median_step(starts: np.ndarray, begin: int, end: int) -> float:
    mine = starts[(starts >= begin) & (starts <= end)]
    if len(mine) < _LEAST_STEPS:
        raise SystemExit(f"only {len(mine)} steps in a window: give more --seconds")
    return float(np.median(np.diff(mine)))


def _interval(ratios: np.ndarray) -> dict[str, float]:
    rng = np.random.default_rng(23)
    draws = np.median(rng.choice(ratios, (10_000, len(ratios))), axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return {
        "median": round(float(np.median(ratios)), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
    }


def _until_it_trains(folder: Path, job: subprocess.Popen[bytes]) -> None:
    log = folder / "train.log"
    deadline = time.monotonic() + 120
    while not log.exists() or log.read_text().count("\n") < _LEAST_STEPS:
        if job.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the training job did not begin")
        time.sleep(0.2)


def _bare(seconds: float) -> tuple[int, int]:
    time.sleep(_SETTLE_S)
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return begin, time.monotonic_ns()


def _attached(command: list[str], ready: str, seconds: float) -> tuple[int, int]:
    """A window with a tool attached, from when it says `ready` on stderr, or has settled."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tool:
        assert tool.stderr is not None
        if ready:
            while ready not in (line := tool.stderr.readline()):
                if not line:
                    raise SystemExit(f"{command[0]} did not attach")
        else:
            time.sleep(1.0)
        begin, end = _bare(seconds)
        tool.send_signal(signal.SIGINT)
        tool.communicate(timeout=300)
    return begin, end


def _family(pid: int) -> list[int]:
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def _none(pid: int, folder: Path, seconds: float) -> tuple[int, int]:
    return _bare(seconds)


def _tracer(pid: int, folder: Path, seconds: float) -> tuple[int, int]:
    only = ["-e", os.environ["TRACER_PROBES"]] if "TRACER_PROBES" in os.environ else []
    command = [*TRACER, "record", *only, "-p", str(pid), "--force", "-o", str(folder / "x.trace")]
    return _attached(command, "Tracing", seconds)


def _perf(pid: int, folder: Path, seconds: float) -> tuple[int, int]:
    events = [
        part
        for probe in PROBES.values()
        for event in probe.events
        if event.feed is Feed.TRACEPOINT and _exists(event.name)
        for part in ("-e", event.name)
    ]
    pids = ",".join(map(str, _family(pid)))
    command = ["perf", "record", "-q", "-o", str(folder / "perf.data"), *events, "-p", pids]
    return _attached(command, "", seconds)


def _exists(event: str) -> bool:
    return Path("/sys/kernel/tracing/events", event.replace(":", "/")).is_dir()


def _strace(pid: int, folder: Path, seconds: float) -> tuple[int, int]:
    pids = [part for one in _family(pid) for part in ("-p", str(one))]
    command = ["strace", "-f", "-o", str(folder / "strace.txt"), *pids]
    return _attached(command, "attached", seconds)


_TOOLS: dict[str, Callable[[int, Path, float], tuple[int, int]]] = {
    "none": _none,
    "tracer": _tracer,
    "perf": _perf,
    "strace": _strace,
}


if __name__ == "__main__":
    main()
