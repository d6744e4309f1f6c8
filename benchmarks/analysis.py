"""Speed and memory of analysis on a generated trace.

    python benchmarks/analysis.py --json [--events N] [--work DIR]

Prints one JSON object: `events` (rows, 100 million without --events); `reasons_s`, the time of the
table of write-back reasons, with opening the trace, which is not in the page cache (without
imports); `report_s`, the wall time of `tracer report --json` as a process; `report_cpu_s`, its CPU
time; `max_rss_bytes`, its peak memory; `growth`, the time of the report over that of a tenth of
the events, divided by 10; `small_report_s`, the time for that tenth; `trace_bytes` and
`generate_s`. Runs on two CPUs. Needs about 2 GB of disk in DIR (default: TMPDIR), which it frees.
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

from parts.generate import generate

TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
_CPUS = 2

_REASONS = """
import os, sys, time
from pathlib import Path
from tracer.analysis.report.writeback import writeback_reasons
from tracer.store.trace import Trace
folder = Path(sys.argv[1])
for path in folder.rglob("*.parquet"):
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
begun = time.perf_counter()
with Trace(folder) as trace:
    assert len(writeback_reasons(trace))
print(time.perf_counter() - begun)
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
        generate(small, options.events // 10)
        begun = time.perf_counter()
        rows = generate(large, options.events)
        generate_s = time.perf_counter() - begun
        os.sync()  # so that write-back does not run while the report reads
        reasons = subprocess.check_output([sys.executable, "-c", _REASONS, str(large)])
        small_s, _, _ = _report(small)
        report_s, cpu_s, max_rss = _report(large)
        size = sum(path.stat().st_size for path in large.rglob("*.parquet"))
    result = {
        "events": sum(rows.values()),
        "reasons_s": float(reasons),
        "report_s": report_s,
        "report_cpu_s": cpu_s,
        "max_rss_bytes": max_rss,
        "growth": report_s / small_s / 10,
        "small_report_s": small_s,
        "trace_bytes": size,
        "generate_s": generate_s,
    }
    print(json.dumps(result) if options.json else "\n".join(f"{k} {v}" for k, v in result.items()))


def _report(trace: Path) -> tuple[float, float, int]:
    """Returns the wall time of a report as a process, its CPU time, and its peak memory."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [*TRACER, "report", str(trace), "--json"], stdout=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the report failed with {process.returncode}")
    spent = usage.ru_utime + usage.ru_stime
    return time.perf_counter() - begun, spent, usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
