"""Cost of the kernel stack of a sleep: two processes on one CPU wake each other.

    python benchmarks/stacks.py --json [--rounds N] [--seconds S]

Each round has a window without a recording, and for each backend one with the probe `sched` and one
with the stacks of its sleeps (`tracer record --stacks`, without py-spy's looks), one after the
other, so that drift of the machine's speed affects all alike. Prints one JSON object:

    {"cpu_ns_per_sleep": {WINDOW: x}, "more_ns": {WINDOW: [low, x, high]},
     "raw_bytes_per_sleep": {WINDOW: x}, "drain_ns_per_sleep": {WINDOW: x}, "lost": {WINDOW: n}}

`cpu_ns_per_sleep`: CPU time of the processes per sleep and its wake-up, the median of the rounds.
`more_ns`: what it has more than the window without a recording of the same round; the median, and
the quartiles of the rounds. `drain_ns_per_sleep`: CPU time of the recorder meanwhile. `lost`:
events that found no room. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tracer.probes.backends.choice import EBPF, FTRACE, PERF
from tracer.probes.events.sched import PROBE, without_stacks
from tracer.probes.schema import Probe
from tracer.session.capture import Capture
from tracer.targets import find_targets

_SETTLE_S = 0.1
_WINDOWS: dict[str, tuple[str, Probe] | None] = {
    "none": None,
    **{
        f"{backend} {name}": (backend, probe)
        for backend in (FTRACE, EBPF, PERF)
        for name, probe in (("sched", without_stacks(PROBE)), ("stacks", PROBE))
    },
}


class Window(NamedTuple):
    """Costs per sleep in one window; `lost`: events in all."""

    cpu_ns: float
    raw_bytes: float
    drain_ns: float
    lost: int


class Load:
    """Two processes that wake each other until they are ended."""

    def __init__(self) -> None:
        pipes = os.pipe(), os.pipe()
        cpu = max(os.sched_getaffinity(0))
        self.pids = [_begin(cpu, *pipes, first=True), _begin(cpu, *pipes[::-1])]

    def state(self) -> tuple[int, int]:
        """Returns the sleeps so far, and the CPU time in ns."""
        told = "".join(Path(f"/proc/{pid}/status").read_text() for pid in self.pids)
        sleeps = sum(map(int, re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", told, re.MULTILINE)))
        used = [int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in self.pids]
        return sleeps, sum(used)

    def end(self) -> None:
        """Ends the processes."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _begin(cpu: int, inward: tuple[int, int], outward: tuple[int, int], first: bool = False) -> int:
    if pid := os.fork():
        return pid
    os.sched_setaffinity(0, {cpu})
    if first:
        os.write(outward[1], b"x")
    while True:
        os.read(inward[0], 1)
        os.write(outward[1], b"x")


@contextlib.contextmanager
def _capture(raw: Path, how: tuple[str, Probe] | None, load: Load) -> Iterator[Capture | None]:
    if how is None:
        yield None
        return
    backend, probe = how
    targets = find_targets(",".join(map(str, load.pids)), [], False, [], False)
    capture = Capture(raw, [probe], None, sorted(os.sched_getaffinity(0)), backend)
    try:
        capture.follow(targets)
        capture.start_machine(None)
        capture.start_targets()
        yield capture
    finally:
        capture.close()


def measure(load: Load, how: tuple[str, Probe] | None, seconds: float) -> Window:
    """Measures one window."""
    with tempfile.TemporaryDirectory() as folder, _capture(Path(folder), how, load) as capture:
        first, _ = load.state()
        time.sleep(_SETTLE_S)
        own = time.process_time_ns()
        sleeps, used = load.state()
        time.sleep(seconds)
        more_sleeps, more_used = (a - b for a, b in zip(load.state(), (sleeps, used), strict=True))
        own = time.process_time_ns() - own
        if capture is None:
            return Window(more_used / more_sleeps, 0, 0, 0)
        assert capture.drain is not None
        stats = capture.stop()
        recorded = load.state()[0] - first
        lost = sum(
            count
            for counts in stats.values()
            for name, count in counts.items()
            if name in ("overrun", "commit overrun", "dropped events")
        )
        written = capture.drain.written / recorded
    return Window(more_used / more_sleeps, written, own / more_sleeps, lost)


def main() -> None:
    """Runs the rounds and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a window")
    options = parser.parse_args()
    load = Load()
    found: dict[str, list[Window]] = {name: [] for name in _WINDOWS}
    try:
        for _ in range(options.rounds):
            for name, how in _WINDOWS.items():
                found[name].append(measure(load, how, options.seconds))
    finally:
        load.end()
    bare = [window.cpu_ns for window in found["none"]]

    def median(name: str, of: str) -> float:
        values: list[float] = [getattr(window, of) for window in found[name]]
        return round(statistics.median(values), 1)

    def more(windows: list[Window]) -> list[float]:
        each = [window.cpu_ns - without for window, without in zip(windows, bare, strict=True)]
        return [round(value, 1) for value in statistics.quantiles(each, n=4)]

    result: dict[str, dict[str, Any]] = {
        "cpu_ns_per_sleep": {name: median(name, "cpu_ns") for name in found},
        "more_ns": {name: more(windows) for name, windows in found.items() if name != "none"},
        "raw_bytes_per_sleep": {name: median(name, "raw_bytes") for name in found},
        "drain_ns_per_sleep": {name: median(name, "drain_ns") for name in found},
        "lost": {name: sum(window.lost for window in windows) for name, windows in found.items()},
    }
    if options.json:
        print(json.dumps(result))
        return
    for key, values in result.items():
        print(key)
        for name, value in values.items():
            print(f"  {name:14} {value}")


if __name__ == "__main__":
    main()
