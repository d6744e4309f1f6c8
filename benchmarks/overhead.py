"""Cost of a recording for a training step: alternating windows with and without it.

    python benchmarks/overhead.py --json [--windows N] [--steps N] [--models lenet,mobilenet]

A job trains without end and marks its steps. Every tool is attached to it in turn, and switched
on and off (`parts/switched.py`) for windows of some steps each. The speed of a shared machine
changes within a second, so many short windows are better than a few long ones. A window has two
ratios: its median time from one step's start to the next, over that of the window before it and
over that of the window after it. The tools' order changes from round to round, so that no tool
always follows the same tool. Prints

    {MODEL: {TOOL: {"median": r, "low": r, "high": r, "mean": r, "mean_low": r, "mean_high": r,
                    "windows": n, "dropped": n}}}

with the median of the ratios and its 95 % bootstrap interval; and the geometric mean, with its
interval, of the ratios of the windows' mean times: the slow steps count in it, too. A window is
dropped if it, the one before it or the one after it had fewer than 5 steps; a round of windows is
dropped if the tool failed. If the job dies, or on Ctrl-C, the benchmark stops and prints the
results so far.

TOOL is `tracer` (its full default recording, or the probes that the variable TRACER_PROBES names),
`events` (the events of that recording in the kernel, while the recorder is stopped), `recorder`
(the recorder, while the events are off), `sched` (the default recording with the probe sched),
`stacks` (that with --stacks), `perf` (perf record of the same tracepoints), `strace` (-f), and
`none`, whose ratio is this machine's own noise. The time to attach a tool, and the tracer's time to
make its tables, are outside the windows. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from parts import switched
from parts.window_ratios import Average, geometric_mean, interval, ratios

from tracer.store.phases import write_phases

_SETTLE_S = 0.02
_LEAST_STEPS = 5
_WINDOWS_A_ROUND = 200
_PACE_S = 3.0


class _Ended(Exception):
    """Raised if the job ends before its windows."""


def main() -> None:
    """Measures, and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--windows", type=int, default=800, help="windows with each tool")
    parser.add_argument("--steps", type=int, default=24, help="approximate steps per window")
    parser.add_argument("--models", default="lenet,mobilenet")
    parser.add_argument("--tools", default=",".join(switched.TOOLS))
    options = parser.parse_args()
    # A shell's background job ignores SIGINT, and so would the tools that SIGINT has to end.
    # SIGTERM ends it likewise: it prints what it has measured.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    result = {
        model: measure(model, options.tools.split(","), options.windows, options.steps)
        for model in options.models.split(",")
    }
    print(json.dumps(result) if options.json else json.dumps(result, indent=1))


def measure(
    model: str, tools: list[str], windows: int, steps: int
) -> dict[str, dict[str, float | int | None]]:
    """Returns the ratios of each tool for one model."""
    tools = [tool for tool in tools if switched.here(tool)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        marks = folder / "marks"
        marks.mkdir()
        job = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("parts") / "steps.py"), model, name],
            env={**os.environ, "TRACER_MARKS": str(marks)},
        )
        rounds: list[tuple[str, switched.Spans]] = []
        failed: Counter[str] = Counter()
        try:
            _until_it_trains(folder, job)
            seconds = steps * _seconds_a_step(folder)
            order = random.Random(23)
            for number in range(1 + -(-windows // _WINDOWS_A_ROUND)):
                for tool in order.sample(tools, len(tools)):
                    try:
                        spans = _on_and_off(switched.TOOLS[tool](), job.pid, folder, seconds)
                    except (SystemExit, OSError) as error:  # a recorder ends when the job dies
                        print(f"a round of {tool} failed: {error}", file=sys.stderr)
                        failed[tool] += _WINDOWS_A_ROUND
                        spans = []
                    if job.poll() is not None:
                        raise _Ended(f"the training job died with status {job.returncode}")
                    if not spans:
                        continue
                    if number:  # the first time fills caches
                        rounds.append((tool, spans))
        except (_Ended, KeyboardInterrupt) as error:
            print(f"ended early: {str(error) or 'by a signal'}", file=sys.stderr)
        finally:
            job.kill()
            job.wait()
        write_phases(marks, 0, None, folder)
        starts = np.sort(pq.read_table(folder / "phases.parquet").column("start").to_numpy())
    return {
        tool: _interval(starts, [spans for which, spans in rounds if which == tool], failed[tool])
        for tool in tools
    }


def _on_and_off(tool: switched.Tool, pid: int, folder: Path, seconds: float) -> switched.Spans:
    """Runs alternating windows without and with the tool; the last one is without."""
    tool.attach(pid, folder)
    try:
        spans = [(False, *_window(seconds))]
        for _ in range(_WINDOWS_A_ROUND):
            tool.on()
            spans.append((True, *_window(seconds)))
            tool.off()
            spans.append((False, *_window(seconds)))
    except BaseException:
        tool.detach([])
        raise
    tool.detach(spans)
    return spans


def _window(seconds: float) -> tuple[int, int]:
    time.sleep(_SETTLE_S)
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return begin, time.monotonic_ns()


def _step(starts: np.ndarray, begin: int, end: int, average: Average) -> float:
    first, last = np.searchsorted(starts, [begin, end])
    mine = starts[first:last]
    return float(average(np.diff(mine))) if len(mine) >= _LEAST_STEPS else float("nan")


def _ratios(starts: np.ndarray, rounds: list[switched.Spans], average: Average) -> np.ndarray:
    found = [ratios([_step(starts, *span[1:], average) for span in spans]) for spans in rounds]
    return np.concatenate([np.empty((0, 2)), *found])


def _interval(
    starts: np.ndarray, rounds: list[switched.Spans], failed: int
) -> dict[str, float | int | None]:
    """Returns median and mean, their 95 % intervals, and the numbers of windows.

    `failed`: the number of windows in rounds that failed as a whole.
    """
    result: dict[str, float | int | None] = {}
    for average, of_ratios, names in (
        (np.median, np.median, ("median", "low", "high")),
        (np.mean, geometric_mean, ("mean", "mean_low", "mean_high")),
    ):
        measured = _ratios(starts, rounds, average)
        known = measured[~np.isnan(measured).any(axis=1)]
        found = interval(known, of_ratios) if len(known) else (None,) * 3
        result |= {n: r if r is None else round(r, 4) for n, r in zip(names, found, strict=True)}
        result |= {"windows": len(known), "dropped": len(measured) - len(known) + failed}
    return result


def _until_it_trains(folder: Path, job: subprocess.Popen[bytes]) -> None:
    log = folder / "train.log"
    deadline = time.monotonic() + 120
    while not log.exists() or log.read_text().count("\n") < _LEAST_STEPS:
        if job.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the training job did not begin")
        time.sleep(0.2)


def _seconds_a_step(folder: Path) -> float:
    log = folder / "train.log"
    before = log.read_text().count("\n")
    time.sleep(_PACE_S)
    return _PACE_S / max(1, log.read_text().count("\n") - before)


if __name__ == "__main__":
    main()
