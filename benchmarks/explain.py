"""Speed and memory of explanations on a generated trace with the scheduler's events.

    python benchmarks/explain.py --json [--events N] [--work DIR]

Prints one JSON object: `events` (rows, 100 million without --events) and `intervals` (rows of
off_cpu); `explain_s`, the wall time of `tracer explain --json` as a process, which finds the trace
in no page cache; `explain_cpu_s`, its CPU time; `max_rss_bytes`, its peak memory; `growth`, the
CPU time over that of a tenth of the events, divided by 10; `parts`, the parts of an explanation and
the report's table of waits, each with `s`, `cpu_s` and `peak_bytes`, measured in one other process
in the order of the list; `trace_bytes` and `generate_s`. Runs on two CPUs. Needs about 4 GB of disk
in DIR (default: TMPDIR), which it frees. Tells on stderr what it does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from parts.generate import generate

TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
_CPUS = 2

_PARTS = """
import json, resource, sys, time
from pathlib import Path
from tracer.analysis.explain.explanation import explain
from tracer.analysis.report.waits import waits_table
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.analysis.views.waiting.steps import steps
from tracer.analysis.views.waiting.waits import waits
from tracer.store.trace import Trace

def peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024

def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

found = {}
with Trace(Path(sys.argv[1])) as trace:
    for make in (waits, steps, critical_path, explain, waits_table):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        begun, spent = time.perf_counter(), cpu()
        make(trace)
        found[make.__name__] = {
            "s": time.perf_counter() - begun, "cpu_s": cpu() - spent, "peak_bytes": peak()
        }
        print(make.__name__, found[make.__name__], file=sys.stderr)
print(json.dumps(found))
"""


def main() -> None:
    """Generates the traces, then measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--events", type=int, default=100_000_000, help="rows of the trace")
    parser.add_argument("--work", type=Path, help="folder for the temporary traces")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CPUS])
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        small, large = Path(folder) / "small.trace", Path(folder) / "large.trace"
        _say("making the traces")
        generate(small, options.events // 10, scheduled=True)
        begun = time.perf_counter()
        rows = generate(large, options.events, scheduled=True)
        generate_s = time.perf_counter() - begun
        _say("explaining a tenth of the events")
        _, small_cpu_s, _ = _explain(small)
        _say(f"explaining {options.events:,} events")
        explain_s, cpu_s, max_rss = _explain(large)
        _say("measuring the parts")
        parts = json.loads(subprocess.check_output([sys.executable, "-c", _PARTS, str(large)]))
        size = sum(path.stat().st_size for path in large.rglob("*.parquet"))
    result: dict[str, Any] = {
        "events": sum(rows.values()),
        "intervals": rows["off_cpu"],
        "explain_s": explain_s,
        "explain_cpu_s": cpu_s,
        "max_rss_bytes": max_rss,
        "growth": cpu_s / small_cpu_s / 10,
        "parts": parts,
        "trace_bytes": size,
        "generate_s": generate_s,
    }
    print(json.dumps(result) if options.json else "\n".join(f"{k} {v}" for k, v in result.items()))


def _explain(trace: Path) -> tuple[float, float, int]:
    """Returns the wall time of an explanation as a process, its CPU time, and its peak memory."""
    os.sync()  # so that write-back does not run while it reads
    for path in trace.rglob("*.parquet"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begun = time.perf_counter()
    with subprocess.Popen(
        [*TRACER, "explain", str(trace), "--json"], stdout=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the explanation failed with {process.returncode}")
    spent = usage.ru_utime + usage.ru_stime
    return time.perf_counter() - begun, spent, usage.ru_maxrss * 1024


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
