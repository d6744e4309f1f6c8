"""Speed of decoding and of the whole finalize, on a storm of system calls recorded here.

    python benchmarks/decode.py --json [--calls N]

Prints one JSON object: `events`, `decode_events_per_s` (ring-buffer pages to event arrays, one
core), `finalize_events_per_s` (raw streams to Parquet), `finalize_max_rss_bytes`. Needs root.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from probes.backends.ftrace.ring_buffer import MIN_EVENT_BYTES, decode_pages
from tracer.store import manifest as manifests
from tracer.store.finalize import common_fields, finalize, raw_streams

_SOURCE = "import os\nfor _ in range({}): os.getppid()"
_REPEATS = 3


def main() -> None:
    """Record the storm, then measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--calls", type=int, default=2_000_003, help="system calls in the storm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "storm.trace"
        subprocess.run(
            [
                *(sys.executable, "-c", "from tracer.cli.main import main; main()"),
                *("record", "-o", str(trace), "-e", "syscalls", "--"),
                *(sys.executable, "-c", _SOURCE.format(options.calls)),
            ],
            check=True,
            capture_output=True,
        )
        result = measure(trace)
    print(json.dumps(result) if options.json else "\n".join(f"{k} {v}" for k, v in result.items()))


def measure(trace: Path) -> dict[str, float]:
    """Best of some repeats, after one that compiles."""
    manifest = manifests.read(trace)
    formats, streams = raw_streams(trace, manifest)
    common = common_fields(formats)
    decode_s, events = [], 0
    for _ in range(_REPEATS + 1):
        events, spent = 0, 0.0
        for stream in streams:
            pages = stream.read(0, stream.pages)
            room = pages.size // MIN_EVENT_BYTES
            out = [np.empty(room, t) for t in ("i8", "u2", "i4", "i8", "i4")]
            start = time.perf_counter()
            n, _, _ = decode_pages(
                pages.reshape(-1).view("<u4"),
                stream.layout.page_bytes // 4,
                stream.pages,
                stream.stamps,
                stream.commits,
                stream.layout.data_offset,
                common.type_shift,
                common.pid_word,
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
        "finalize_max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    main()
