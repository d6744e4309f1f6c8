"""Speed of decoding and of the whole finalize, on storms of system calls that it records.

    python benchmarks/decode.py --json [--calls N] [--large N]

Prints one JSON object: `events`; `decode_events_per_s` (ring-buffer pages to event arrays, one
core); `finalize_events_per_s` (raw streams to Parquet); `perf_script_events_per_s` (perf script
on a perf.data of the same load, to /dev/null); `finalize_100m_max_rss_bytes`, the peak memory of
a process that only finalizes a recording of `large_events` events (default: 100 million; with
--large 0 it is null). Needs root, and about 10 GB of disk for the large recording.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tracer.probes.backends.ftrace.page_stream import PageStream
from tracer.probes.backends.ftrace.ring_buffer import MIN_EVENT_BYTES, decode_pages, header_index
from tracer.store import manifest as manifests
from tracer.store.finalize import finalize, raw_streams

LOADS = Path(__file__).with_name("parts") / "loads.py"
TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
_REPEATS = 3

_FINALIZE = """
import resource, sys
from pathlib import Path
from tracer.store import manifest
from tracer.store.finalize import finalize
folder = Path(sys.argv[1])
finalize(folder, manifest.read(folder))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def main() -> None:
    """Records the storms, then measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--calls", type=int, default=4_000_000, help="system calls in the storm")
    parser.add_argument(
        "--large", type=int, default=100_000_000, help="events of the large recording; 0: none"
    )
    options = parser.parse_args()
    result: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        trace = _record(Path(folder), options.calls)
        result |= speeds(trace)
        result["perf_script_events_per_s"] = perf_script(Path(folder), options.calls)
        result["large_events"] = result["finalize_100m_max_rss_bytes"] = None
    if options.large:
        with tempfile.TemporaryDirectory() as folder:
            trace = _record(Path(folder), options.large // 2)
            shutil.rmtree(trace / "events")
            peak = subprocess.check_output([sys.executable, "-c", _FINALIZE, str(trace)])
            rows = manifests.read(trace)["tables"]["syscalls"]["rows"]
            result["large_events"] = 2 * rows
            result["finalize_100m_max_rss_bytes"] = int(peak)
    print(json.dumps(result) if options.json else "\n".join(f"{k} {v}" for k, v in result.items()))


def _load(calls: int) -> list[str]:
    return [sys.executable, "-S", "-E", str(LOADS), "calls", str(calls // (os.cpu_count() or 1))]


def _record(folder: Path, calls: int) -> Path:
    trace = folder / "storm.trace"
    command = [*TRACER, "record", "-o", str(trace), "-e", "syscalls", "--", *_load(calls)]
    subprocess.run(command, check=True, capture_output=True)
    return trace


def perf_script(folder: Path, calls: int) -> float | None:
    """Returns the events per second that perf script prints; None without perf."""
    if shutil.which("perf") is None:
        return None
    data = str(folder / "perf.data")
    events = ["-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit"]
    record = ["perf", "record", "-q", "-m", "16M", "-o", data, *events, "--"]
    subprocess.run([*record, *_load(calls // 4)], check=True, capture_output=True)
    begun = time.perf_counter()
    with subprocess.Popen(["perf", "script", "-i", data], stdout=subprocess.PIPE) as script:
        printed = script.stdout
        assert printed is not None
        lines = sum(block.count(b"\n") for block in iter(lambda: printed.read(1 << 20), b""))
    return round(lines / (time.perf_counter() - begun))


def speeds(trace: Path) -> dict[str, float | None]:
    """Returns the best of some repeats, after one that compiles."""
    manifest = manifests.read(trace)
    _, streams = raw_streams(trace, manifest)
    decode_s, events = [], 0
    for _ in range(_REPEATS + 1):
        events, spent = 0, 0.0
        for stream in streams:
            if not isinstance(stream, PageStream):
                continue
            pages = stream.read(0, stream.pages)
            layout = stream.layout
            index = header_index(pages, layout.timestamp_offset, layout.commit_offset)
            room = pages.size // MIN_EVENT_BYTES
            out = [np.empty(room, t) for t in ("i8", "u2", "i4", "i8", "i4")]
            start = time.perf_counter()
            n, _, _ = decode_pages(
                pages.reshape(-1).view("<u4"),
                layout.page_bytes // 4,
                stream.pages,
                *index,
                layout.data_offset,
                stream.common.type_shift,
                stream.common.pid_word,
                *out,
            )
            spent += time.perf_counter() - start
            events += int(n)
        decode_s.append(spent)
    for stream in streams:
        stream.close()
    finalize_s = []
    for _ in range(_REPEATS):
        shutil.rmtree(trace / "events")
        start = time.perf_counter()
        finalize(trace, manifest)
        finalize_s.append(time.perf_counter() - start)
    return {
        "events": events,
        "decode_events_per_s": round(events / min(decode_s[1:])),
        "finalize_events_per_s": round(events / min(finalize_s)),
    }


if __name__ == "__main__":
    main()
